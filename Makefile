# Multi-head attention, one shape at a time. `make` alone says what can be made.

# The Python that .venv is made from, once: 3.10 or later.
PYTHON ?= python3
ARGS ?=
VENV := .venv
RUN := $(VENV)/bin/python
STEPS := $(sort $(patsubst steps/step%.py,%,$(wildcard steps/step[0-9].py steps/step[0-9][0-9].py)))
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help run step page test quick lint bench clean
.DEFAULT_GOAL := help

ifneq ($(filter step,$(MAKECMDGOALS)),)
ifneq ($(words $(filter $(STEPS),$(N))) $(words $(N)),1 1)
$(error N='$(N)': give one step's number, as in `make step N=15`; there are 1 to $(words $(STEPS)))
endif
endif

help:
	@echo 'make run            the whole walk'
	@echo 'make step N=15      one step of it'
	@echo 'make page           the walk as a page for the browser: page.html'
	@echo 'make test           lint, then every test'
	@echo 'make quick          what computes and explains, tested in half a minute'
	@echo 'make lint           ruff and mypy; biome and tsc for the page'
	@echo 'make bench          speed, as ratios of paired runs'
	@echo 'make clean          remove what was made: .venv, page.html, the tools of make lint'
	@echo
	@echo 'Flags go in ARGS, as in: make run ARGS="--heads 3 --follow river"'

run: $(VENV)/run
	@$(RUN) gptversion.py $(ARGS)

step: $(VENV)/run
	@$(RUN) -m steps.step$(N) $(ARGS)

page: $(VENV)/run
	@$(RUN) gptversion.py --page page.html $(ARGS)

# A worker that is done takes over half of what another has left.
PYTEST := $(RUN) -m pytest -n auto --dist worksteal

test: lint
	@$(PYTEST) --durations=10 $(ARGS)

# What computes, records and explains: no browser, no page, no file to debug, and nearly
# all in one process.
QUICK := agreement article attention chapter_figures document predict readme recorder \
  tokens words

quick: $(VENV)/test
	@$(RUN) -m ruff check --quiet
	@$(PYTEST) $(QUICK:%=tests/test_%.py) $(ARGS)

lint: $(VENV)/test
	@$(RUN) -m ruff check --quiet
	@$(RUN) -m ruff format --check --quiet
	@$(RUN) -m mypy
	@$(RUN) tests/web/lint.py

bench: $(VENV)/test
	@$(RUN) tests/bench.py $(ARGS)

clean:
	@! test -e $(VENV)/made || rm -rf $(VENV)
	@! grep -q 'made by gptversion.py -->' page.html 2>/dev/null || rm page.html
	rm -rf tests/web/node_modules

# Each stamp is newer than the requirements it was made from, so nothing is done twice;
# of two makes at once the second waits, and finds it done.
LOCKED := -c 'import fcntl, subprocess, sys; held = open("Makefile"); \
  fcntl.flock(held, fcntl.LOCK_EX); sys.exit(subprocess.call(["sh", "-ec", sys.argv[1]]))'

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo 'Python 3.10 or later is needed: make PYTHON=python3.12 ...' >&2; exit 2; }
	@$(PYTHON) $(LOCKED) 'test ! -e $@ || exit 0; \
	  echo "Making $(VENV), once; torch is a large download." >&2; \
	  $(PYTHON) -m venv $(VENV); touch $@'

$(VENV)/run: $(VENV)/made requirements.txt
	@$(RUN) $(LOCKED) 'test -n "$$(find $^ -newer $@ 2>&1)" || exit 0; \
	  $(RUN) -m pip install --quiet -r requirements.txt; touch $@'

$(VENV)/test: $(VENV)/run tests/requirements.txt
	@$(RUN) $(LOCKED) 'test -n "$$(find $^ -newer $@ 2>&1)" || exit 0; \
	  $(RUN) -m pip install --quiet -r tests/requirements.txt; touch $@'
