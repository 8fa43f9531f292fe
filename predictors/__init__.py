"""predictors: history in, forecast out. No network, no clock, no database."""
