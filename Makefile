# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo quick test test-all test-processors test-extras check docs red-team bench bench-scale evidence clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "torch>=2.6,<2.14"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

demo: $(STAMP)  ## train, then audit bundled records under five set-ups; prints where the report is
	$(BIN)/leakgauge audit examples/demo.toml --workers 2 --out demo-output

quick: $(STAMP)  ## the laws and the tests of changed rooms, in under a minute
	$(BIN)/python -m tests.quick

test: $(STAMP)  ## the fast tests: at most 8 minutes on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: $(STAMP)  ## every test, the slow ones too
	$(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile=many

test-processors: $(STAMP)  ## the numeric tests as other processors compute: about a quarter of an hour
	$(BIN)/python -m tests.processors -n 2 --dist worksteal

test-extras: $(STAMP)  ## the tests of Flower, NVFlare and Opacus, in an environment of their own: two to four minutes
	.ci/extras

check: $(STAMP)  ## ruff, mypy strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)  ## the documentation site, site/index.html; it opens without a network
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_papers.py
	$(BIN)/python docs/make_standings.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "wrote site/index.html"

red-team: $(STAMP)  ## planted leaks and drowned clients: what is said of each
	$(BIN)/python -m leakgauge.testing.red_team

bench: $(STAMP)  ## our solver against two one-image-at-a-time loops
	$(BIN)/python -m benchmarks

bench-scale: $(STAMP)  ## how cost grows with records, parameters, problems and cells; stores benchmarks/scale.json
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.cost

evidence: $(STAMP)  ## measure every claim; writes docs/evidence.md (resumable)
	$(BIN)/python -m evidence
	$(BIN)/python docs/make_figures.py

clean:
	rm -rf .venv build dist site demo-output .pytest_cache .mypy_cache .ruff_cache
