# Every command sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test slow lint docs bench peers clean
help: ## list the commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: .venv/ready ## make .venv and install longtail with everything it can use

.venv/ready: pyproject.toml constraints.txt scripts/setup
	PYTHON=$(PYTHON) scripts/setup dev
	@touch $@ .venv/small

# the demo waits for no more than it uses
.venv/small: pyproject.toml constraints.txt scripts/setup
	[ -e .venv/ready ] || PYTHON=$(PYTHON) scripts/setup plot
	@touch $@

demo: .venv/small ## build a real data set, train on it without and with label rows, show both
	scripts/demo

test: setup ## run the tests (slow and gpu ones are left out)
	$(BIN)/python -m pytest -n 2 -q

slow: setup ## run the slow tests
	$(BIN)/python -m pytest -q -m slow

lint: setup ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: setup ## run the benchmarks, and the peers
	for file in benchmarks/[a-z]*.py; do $(BIN)/python $$file || exit 1; done

peers: setup ## install the baselines of other authors that comparisons run, each on its own
	scripts/peers

clean: ## remove everything the commands made
	rm -rf .venv build site
