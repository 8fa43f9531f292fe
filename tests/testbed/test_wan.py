"""The WAN does what its topology says, changes when told to, and leaves nothing behind, killed or not."""

import pytest
