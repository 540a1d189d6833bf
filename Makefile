# Popserve: two commands matter, `make run` and `make test`. Everything lands in .venv and under POPSERVE_HOME (./var).
#
# Installed from complete lock files without a resolver: requirements/cpu.txt, or requirements/cuda.txt where
# nvidia-smi answers (LOCK=cpu or LOCK=cuda decides by hand), plus requirements/test.txt for the tests.
# The *.in files say what is wanted, excludes*.txt what is left out and why; `make lock` resolves them anew.

ifndef LOCK
LOCK := $(shell nvidia-smi >/dev/null 2>&1 && echo cuda || echo cpu)
endif
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input -qq install --no-deps
# The first that works and has the version. 3.11 leads: it is the one that the tests run on.
PYTHONS := $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3
INSTALLED := .venv/.installed-$(LOCK)
TESTED := .venv/.installed-test
CHROMIUM = command -v chromium || command -v chromium-browser || command -v google-chrome

.DEFAULT_GOAL := help
.PHONY: run test lint bench lock clean help install model chromium
# One job at a time: every target works on the same virtual environment.
.NOTPARALLEL:

run: model ## install what is missing and serve on http://127.0.0.1:8000 (PORT=8123 and POPSERVE_... pass through)
	@command -v c++ >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || echo \
	"No C++ compiler found: the engine will run uncompiled, which is slower. Debian's package g++ changes that."
	@exec .venv/bin/popserve serve

test: model $(TESTED) chromium ## install what the tests need as well and run them all (PYTEST_ARGS="-k merge -x")
	@exec $(PY) -m pytest $(PYTEST_ARGS)

lint: $(TESTED) ## check style and simple mistakes with ruff
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

bench: model $(TESTED) ## measure tokens a second against plain vLLM on this machine (BENCH_ARGS="--help" lists the options)
	@exec $(PY) -m bench.throughput $(BENCH_ARGS)

lock: .venv/bin/python ## resolve requirements/*.in anew (where torch's CPU build is a local file: LOCK_ARGS="--find-links DIR")
	@$(PIP) -r requirements/tools.txt
	@set -e; cd requirements; \
	lock() { in=$$1; shift; echo "requirements/$$in.txt"; ../.venv/bin/uv pip compile $$in.in -o $$in.txt -q --upgrade \
	  --universal --python-version 3.11 --no-annotate --custom-compile-command "make lock" "$$@"; }; \
	lock tools; \
	lock cpu --excludes excludes.txt --excludes excludes-cpu.txt $(or $(LOCK_ARGS),--torch-backend cpu); \
	lock cuda --excludes excludes.txt; \
	lock test

clean: ## remove the virtual environment and caches (what was learned, under POPSERVE_HOME, stays)
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis test-results build *.egg-info
	find app engine tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 14

install: $(INSTALLED)

model: $(INSTALLED)
	@.venv/bin/popserve prepare

.venv/bin/python:
	@for python in $(PYTHONS); do \
	  if $$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
	    >/dev/null 2>&1; then echo "Virtual environment: $$($$python --version), .venv"; exec $$python -m venv --clear .venv; fi; \
	done; \
	echo "Popserve needs Python 3.11 to 3.14 with its venv module (on Debian: python3 and python3-venv), and none of" >&2; \
	echo "these is one: $(PYTHONS). Found as python3: $$(python3 --version 2>&1). PYTHON=/path/to/python names another." >&2; \
	exit 1

# torch==...+cpu is not on the default package index: pip as configured is tried first, then uv, which knows torch's own.
$(INSTALLED): requirements/$(LOCK).txt pyproject.toml | .venv/bin/python
	@for stamp in .venv/.installed-*; do case $$stamp in $@|$(TESTED)|*'*') ;; \
	  *) echo "Another lock was installed before: starting afresh."; $(PY) -m venv --clear .venv ;; esac; done
	@echo "Installing from requirements/$(LOCK).txt (a minute or two, once) ..."
	@grep '^torch==' requirements/$(LOCK).txt > .venv/torch.txt
	@$(PIP) -r .venv/torch.txt 2>.venv/torch.log || { \
	  [ "$(LOCK)" = cpu ] || { cat .venv/torch.log >&2; exit 1; }; \
	  echo "pip's index has no CPU build of torch, uv fetches it ..."; $(PIP) -r requirements/tools.txt && \
	  .venv/bin/uv pip install -q --python $(PY) --no-deps --torch-backend cpu -r .venv/torch.txt || { \
	  cat .venv/torch.log >&2; echo "The CPU build of torch could not be installed: see the two errors above." >&2; exit 1; }; }
	@$(PIP) -r requirements/$(LOCK).txt
	@$(PIP) --no-build-isolation -e .
	@touch $@

$(TESTED): requirements/test.txt $(INSTALLED)
	@$(PIP) -r requirements/test.txt
	@touch $@

chromium:
	@$(CHROMIUM) >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ]; then sudo=; elif sudo -n true 2>/dev/null; then sudo="sudo -n"; else sudo=no; fi; \
	  if [ "$$sudo" = no ] || ! command -v apt-get >/dev/null; then \
	    echo "No Chromium found, and no way to install it: the browser tests need one (on Debian: the package chromium)."; \
	  else \
	    echo "Installing Debian's chromium for the browser tests ..."; \
	    { $$sudo apt-get -qq update && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
	      --no-install-recommends chromium; } </dev/null >/dev/null || echo "Chromium could not be installed."; \
	  fi; }
