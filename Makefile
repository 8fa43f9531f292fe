# Commands for newcomers. Each installs what it needs and what is missing.
.PHONY: demo test test-long test-servers fuzz repeat bench bench-copies bench-random-reads bench-slices bench-broker bench-hostile bench-reports bench-forecasts bench-planner bench-paper bench-collecting bench-depots bench-depot-routes bench-deadlines bench-s3 bench-streams bench-wan bench-webdav bench-staging bench-testbed results docs executable shared-files deb

# The directories of servers and tc, which are not in a user's PATH on Debian.
export PATH := $(PATH):/usr/sbin:/sbin
# Tests start thousands of processes: each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

READY := .venv/.ready
DEMO_READY := .venv/.demo-ready
RUN := .venv/bin/python -m
ON_A_WAN := tests/benchmarks tests/faults tests/testbed
RESULTS := docs/reference/results/results.json
SEEDS := 1 2 3 4 5 6 7 8 9 10

# Three GridFTP servers behind links of different rates, one file, all of them at once.
demo: $(DEMO_READY)
	@$(RUN) scripts.demo

# Checks style and types, then runs all tests, among them the import contracts. mypy runs beside slow preparations.
# Most tests wait for servers, so more of them run at once than there are cores. Files with few, slow tests are not left
# to the end, where one process would run alone. Tests on a WAN measure short times, so no others run beside them.
test: $(READY)
	$(RUN) ruff check
	$(RUN) ruff format --check
	@$(RUN) tests.support.prepared & preparing=$$!; $(RUN) mypy && wait $$preparing
	$(RUN) pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder -m "not wan"
	$(RUN) pytest --numprocesses 3 --dist loadfile -m wan $(ON_A_WAN)

# The tests that explore, in their long form. Pegasus's worker wants an older globus-sdk, which its transfers do not use;
# Snakemake wants an older SQLAlchemy, so its tests have modules of their own. Rucio, client and server, has an
# environment of its own; its Globus transfer tool works with globus-sdk 3 only.
SNAKEMAKE := $(CURDIR)/build/snakemake
RUCIO := build/rucio
test-long: $(READY)
	@$(RUN) pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat --editable '.[hosts,packages]'
	@$(RUN) pip install --quiet --disable-pip-version-check --no-deps pegasus-wms.worker
	@$(RUN) venv $(RUCIO) && $(RUCIO)/bin/pip install --quiet --disable-pip-version-check rucio 'globus-sdk <4' pyyaml
	COGET_TESTS=long $(RUN) pytest --numprocesses 2 --dist loadfile -m "long and not wan"
	@$(RUN) pip install --quiet --disable-pip-version-check --upgrade --target $(SNAKEMAKE) 'snakemake >=9'
	@$(RUN) pip install --quiet --disable-pip-version-check --upgrade --no-deps --target $(SNAKEMAKE) ./packaging/snakemake
	PYTHONPATH=$(SNAKEMAKE) COGET_TESTS=long $(RUN) pytest -m long tests/packaging
	COGET_TESTS=long $(RUN) pytest -m "long and wan" $(ON_A_WAN)

# Tests on servers that Debian has no package of: Azurite (with npm) and fake-gcs-server (with Go). Each installation
# takes some minutes, and its tests are skipped if it fails.
SERVERS := build/servers
test-servers: $(READY)
	@$(RUN) pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat --editable '.[clouds]'
	-@timeout 600 npm install --silent --no-audit --no-fund --prefix $(SERVERS) azurite
	-@GOBIN=$(CURDIR)/$(SERVERS)/bin timeout 1200 go install github.com/fsouza/fake-gcs-server@latest
	COGET_SERVERS=$(SERVERS) $(RUN) pytest --numprocesses 2 --dist loadfile tests/servers

# What tests of random cases have not tried, for so many minutes; what fails is written down as a regression test.
MINUTES := 10
fuzz: $(READY)
	$(RUN) tests.support.fuzzing --minutes $(MINUTES)

# All tests three times in a row, alone and beside busy loops, and those that were mended 200 times: goes on where the
# last call was, for so many minutes, and prints the table. Takes hours in all.
repeat: $(READY)
	$(RUN) tests.support.repeating --minutes $(MINUTES)

# coget beside globus-url-copy on this machine, the fixed cost of a download, then the broker.
bench: $(READY)
	@$(RUN) tests.benchmarks.loopback
	@$(RUN) tests.benchmarks.start_up
	@$(RUN) tests.benchmarks.broker

# Copies between two servers, beside globus-url-copy; and, with root, over a depot.
bench-copies: $(READY)
	@$(RUN) tests.benchmarks.thirdparty

# Reads at random from three servers of which one stalls, beside fsspec's http. Takes two minutes.
bench-random-reads: $(READY)
	@$(RUN) pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat --editable '.[hosts]'
	@$(RUN) tests.benchmarks.random_reads

# xarray opens and slices a file of 1 GB on a WAN, beside fsspec's http and ftp. Takes ten minutes, and needs root.
bench-slices: $(READY)
	@$(RUN) pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat --editable '.[hosts]'
	@$(RUN) tests.benchmarks.slices

# The broker over HTTP, with large catalogues and histories. Takes four minutes.
bench-broker: $(READY)
	@$(RUN) tests.benchmarks.broker

# What a broker does for others while eight users send the worst that it takes. Takes half an hour.
bench-hostile: $(READY)
	@$(RUN) tests.benchmarks.hostile
	@$(RUN) tests.benchmarks.hostile --postgres

# How soon reports are there, of ten million transfers. Takes a quarter of an hour.
bench-reports: $(READY)
	@$(RUN) tests.benchmarks.reports

# How good and how fast forecasts are, on published logs.
bench-forecasts: $(READY)
	@$(RUN) tests.benchmarks.forecasts

# How fast plans are made, beside a bare max-flow. Takes some minutes.
bench-planner: $(READY)
	@$(RUN) tests.benchmarks.planner
	@$(RUN) tests.benchmarks.timeline

# A depot beside HAProxy. Takes some minutes.
bench-depots: $(READY)
	@$(RUN) tests.benchmarks.depots

# A file directly, over a depot, and by both routes, on networks like those of the paper; then a depot that is killed,
# and one with large buffers. Takes an hour and a half, and needs root.
bench-depot-routes: $(READY)
	@$(RUN) tests.benchmarks.depot_routes
	@$(RUN) tests.benchmarks.depot_killed
	@$(RUN) tests.benchmarks.depot_buffers

# Finish times and deadlines on published traces, in virtual time. Takes half an hour.
bench-deadlines: $(READY)
	@$(RUN) tests.benchmarks.deadlines

# S3 with four replicas, beside rclone. Takes some minutes.
bench-s3: $(READY)
	@$(RUN) tests.benchmarks.s3

# Many small files of a WebDAV server over a WAN, beside rclone. Takes some minutes, and needs root.
bench-webdav: $(READY)
	@$(RUN) tests.benchmarks.webdav

# Guaranteed streams over several paths, in virtual time, beside fair queuing. Takes some minutes.
bench-streams: $(READY)
	@$(RUN) tests.benchmarks.streams
	@$(RUN) tests.benchmarks.reading

# coget beside its peers on networks that differ, change and fail. Takes hours, and needs root.
bench-wan: $(READY)
	@$(RUN) tests.benchmarks.wan

# The same and random networks, kept, and made into docs/reference/results.md. Goes on where the last call was.
results: $(READY)
	@$(RUN) pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat --editable '.[bench]'
	@$(RUN) tests.benchmarks.wan --json $(RESULTS)
	@$(RUN) tests.benchmarks.wan random $(SEEDS:%=--seed %) --json $(RESULTS)
	@$(RUN) tests.benchmarks.page $(RESULTS)

# Collections over relays and straight, beside what was planned. Takes twenty minutes, and needs root.
bench-staging: $(READY)
	@$(RUN) tests.benchmarks.staging

# The experiments of the co-allocation paper, on a WAN. Takes a quarter of an hour, and needs root.
bench-paper: $(READY)
	@$(RUN) tests.benchmarks.paper

# The experiments of the papers about collecting, in virtual time. Takes half an hour.
bench-collecting: $(READY)
	@$(RUN) tests.benchmarks.collecting cheng
	@$(RUN) tests.benchmarks.collecting confluence

# What the testbed's links do, beside what they were told. Takes minutes, and needs root.
bench-testbed: $(READY)
	@$(RUN) tests.testbed.accuracy

# The reports' pictures and the page that shows them, then the documentation site. Takes two minutes, and Debian's
# Chromium.
docs: $(READY)
	@$(RUN) scripts.docs
	@rm -rf build/site
	@$(RUN) sphinx --fail-on-warning --keep-going --quiet -c docs -d build/doctrees . build/site
	@echo "open build/site/index.html in a browser"

# The client and HTCondor's plugin as one file that needs no Python: dist/coget. Takes two minutes.
PYTHON := /usr/bin/python3
executable:
	rm -rf build/lib # modules of an older build would go into the executable
	$(PYTHON) -m venv --clear build/executable
	build/executable/bin/pip install --quiet --disable-pip-version-check '.[executable,gsi]'
	build/executable/bin/pyinstaller --noconfirm --log-level ERROR --workpath build packaging/executable/coget.spec

# Man pages, and completion scripts of bash, zsh and fish; a wheel that is built afterwards contains them.
shared-files: $(READY)
	@rm -rf packaging/share
	@$(RUN) scripts.shared_files packaging/share

# The client as a Debian package with all its libraries: dist/coget_VERSION_ARCHITECTURE.deb. Needs debhelper and
# dh-virtualenv. It is built from the last commit. Takes some minutes.
DEB := build/deb/coget
deb: shared-files
	@rm -rf build/deb dist/coget_*.deb && mkdir -p $(DEB) dist
	@git archive --output build/deb/source.tar HEAD && tar --extract --file build/deb/source.tar --directory $(DEB)
	@cp -r packaging/share $(DEB)/packaging/ && cp -r packaging/debian $(DEB)/debian
	@printf 'coget (%s) unstable; urgency=low\n\n  * See CHANGELOG.md.\n\n -- The coget authors <coget@localhost>  %s\n' \
	    "$$(sed -n 's/^version = //p' setup.cfg)" "$$(date --rfc-email)" > $(DEB)/debian/changelog
	@cd $(DEB) && env --unset=PYTHONPATH dpkg-buildpackage --build=binary --no-sign > ../build.log
	@mv build/deb/coget_*.deb dist/

$(READY): setup.cfg pyproject.toml setup.py scripts/setup scripts/debian-packages
	@scripts/setup all
	@touch $(DEMO_READY) $@

$(DEMO_READY): setup.cfg pyproject.toml setup.py scripts/setup scripts/debian-packages
	@[ -e $(READY) ] || scripts/setup demo
	@touch $@
