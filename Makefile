# Needs make and Python 3.11 or newer, nothing else: each target sets up .venv by itself.
#   make run     run a name server and a broker, for clients at 127.0.0.1:9876
#   make check   lint, types, layers and the quick tests, without Java (docs/testing.md)
#   make test    lint, types, layers and all tests; with Java 17 and Maven the interop tests too
#   make test-pure  the tests of what the C extension replaces again, in pure Python
#   make interop the tests with every Apache version and client, and what else
#                `make test` leaves out
#   make fuzz    each decoder for FUZZ_SECONDS (Linux, Python 3.11 to 3.13)
#   make fuzz-native  the C extension for FUZZ_SECONDS, under sanitizers (Linux, GCC or Clang)
#   make sim     a million crash images of the store, PROGRAMS of a simulated broker, and SEEDS runs
#                of a simulated cluster (docs/testing.md)
#   make chaos   official clients under faults for MINUTES, with a page, build/chaos.html
#   make bench   the rate of sends to the broker over loopback
#   make pipeline  the demo of a Spark job: broker, data and stream (Java 17)
#   make docs    the documentation, in site/; with VERSION=0.2 in build/site/0.2, beside others
#   make wheel   a wheel for every Python and platform, without the C extension, in dist/
#   make wheel-native  one with the C extension, for this Python and platform (C compiler)
#   make wheel-client  one of trocket-client, the client alone, for every Python and platform
#   make lock    deploy/requirements.txt anew: the newest packages that servers and clients may use
#   make audit   those packages in the lists of known vulnerabilities
#   make sbom    the bill of materials of what deploy/requirements.txt installs, in dist/
#   make release sdist and wheel of the last commit, built twice and compared, with sbom and
#                checksums, in dist/ (docs/releasing.md)
#   make clean   remove .venv and all caches
# Variables: PYTHON (the interpreter for .venv), ARGS (further arguments of the command).

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
# Stamps of the installed packages: for `run`, for most other targets, for the site and for Spark.
RUN := .venv/.ready-to-run
TEST := .venv/.ready-to-test
DOCS := .venv/.ready-for-docs
SPARK := .venv/.ready-for-spark
# Tools for releases have packages of their own, which must not mix with those of the tests.
TOOLS := .venv/release
RELEASE := $(TOOLS)/.ready
RELEASE_TOOLS := build==1.6.1 cyclonedx-bom==7.5.0 pip-audit==2.10.1 sigstore==4.5.1 twine==7.0.0 uv==0.13.9
LOCK := deploy/requirements.txt
# A folder for each version of the pages; `make docs` empties site/.
SITES := build/site
# What a machine with servers and clients may have: all extras but those for Spark and for work on
# trocket itself.
LOCKED := cli compression console grpc opentelemetry otlp tls
FUZZ_SECONDS ?= 300
PROGRAMS ?= 20000
SEEDS ?= 50000
MINUTES ?= 60
# Compiled at set-up, and recompiled by `make run`: otherwise compiling is half of the start time.
COMPILED := __init__.py native common remoting disk store namesrv controller broker client filtersrv cli
# The tests start some hundred interpreters, and two of pytest: each would compile every module
# again where no byte code may be written.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest

# Folders whose tests run code that has a counterpart in C; those of commands, documents, packaging
# and Spark, and the tests with Java, run it with the extension only.
PURE := native common remoting disk store namesrv broker client filtersrv testing attacks world

# What tests share is typed as strictly as the package. Left out: a user's program without types, and
# the module that PySpark's workers import before they have any other.
KIT = $(shell find tests -name '*.py' ! -name 'test_*.py' ! -path tests/client/frameworks/plugins.py \
	! -path 'tests/spark/worker_site/*')

.PHONY: run check test test-pure interop lint types layers fuzz fuzz-native sim chaos bench pipeline docs clean
.PHONY: wheel wheel-native wheel-client lock audit sbom release

run: $(RUN)
	@exec env -u PYTHONDONTWRITEBYTECODE $(BIN)/trocket up $(ARGS)

check: lint types layers
	$(PYTEST) -p randomly -n 2 --dist loadscope -m "not java and not slow" \
		--hypothesis-profile quick $(ARGS)

# Three processes also on two cores: two of them often wait for JVMs (tests/distribution.py).
test: lint types layers
	$(PYTEST) -p randomly -n 3 --dist loadscope $(ARGS)

test-pure: $(TEST)
	TROCKET_PURE=1 $(PYTEST) -p randomly -n 2 --dist loadscope -m "not java" $(ARGS) \
		$(addprefix tests/,$(PURE))

interop: $(TEST)
	$(PYTEST) -p randomly -n 2 --dist loadscope --matrix -m "interop or matrix" $(ARGS)

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(TEST)
	$(BIN)/mypy -p trocket
	$(BIN)/mypy $(KIT)

layers: $(TEST)
	$(BIN)/lint-imports

fuzz: $(TEST)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	$(BIN)/python tests/fuzz/fuzz.py all $(FUZZ_SECONDS) $(ARGS)

fuzz-native: $(TEST)
	$(BIN)/python -m tests.fuzz.native $(FUZZ_SECONDS) $(ARGS)

sim: $(TEST)
	$(BIN)/python -m tests.world store --images 1000000 --depth2 $(ARGS)
	$(BIN)/python -m tests.world broker --runs $(PROGRAMS)
	$(BIN)/python -m tests.world cluster --seeds $(SEEDS)

# The page and the figures stay, and those of an earlier run are replaced.
chaos: $(TEST)
	@mkdir -p build
	$(BIN)/python -m trocket.bench.chaos --minutes $(MINUTES) \
		--json build/chaos.json --page build/chaos.html $(ARGS)

bench: $(TEST)
	$(BIN)/python -m trocket.bench.wire $(ARGS)

pipeline: $(SPARK)
	@exec $(BIN)/trocket pipeline trades_ohlc --demo $(ARGS)

# One site, or with VERSION one beside those of other versions, with a list of them on each page.
docs: $(DOCS)
# By the command line alone: an environment may have a VERSION of something else.
ifeq ($(origin VERSION),command line)
	NO_MKDOCS_2_WARNING=1 TROCKET_DOCS_VERSION=$(VERSION) $(BIN)/mkdocs build --strict \
		--site-dir $(SITES)/$(VERSION) $(ARGS)
	$(BIN)/python docs/.site/versions.py $(SITES)
else
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
endif

# In an own folder first: a wheel of an earlier `make` would hide that none was made.
WHEEL := $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
define TO_DIST
@mkdir -p dist
@for wheel in build/wheel/*.whl; do mv "$$wheel" dist/ && echo "dist/$${wheel##*/}"; done
endef

wheel: $(RUN)
	@rm -rf build/wheel
	@TROCKET_PURE=1 TROCKET_CLIENT= $(WHEEL)
	$(TO_DIST)

wheel-native: $(RUN)
	@rm -rf build/wheel
	@TROCKET_PURE= TROCKET_CLIENT= $(WHEEL)
	@test ! -e build/wheel/*-py3-none-any.whl || { \
		echo "the C extension could not be built: it needs a C compiler and Python's headers;" \
			"on Debian and Ubuntu: apt-get install gcc python3-dev." \
			"'make wheel' makes a wheel without it" >&2; exit 1; }
	$(TO_DIST)

wheel-client: $(RUN)
	@rm -rf build/wheel
	@TROCKET_PURE=1 TROCKET_CLIENT=1 $(WHEEL)
	$(TO_DIST)

lock: $(RELEASE)
	$(TOOLS)/bin/uv pip compile pyproject.toml $(addprefix --extra ,$(LOCKED)) --universal \
		--python-version 3.11 --generate-hashes --quiet --upgrade \
		--custom-compile-command "make lock" --output-file $(LOCK) $(ARGS)

# A package that cannot be looked up fails, too: silence would be taken for an all-clear.
audit: $(RELEASE)
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes --requirement $(LOCK) $(ARGS)

# Of an environment, because licences and the graph of dependencies are in the installed packages.
# The version is not in pyproject.toml, so it is written into a copy.
sbom: $(RELEASE)
	rm -rf $(TOOLS)/locked
	$(BIN)/python -m venv --without-pip $(TOOLS)/locked
	$(TOOLS)/bin/uv pip install --quiet --python $(TOOLS)/locked/bin/python \
		--require-hashes --requirement $(LOCK)
	mkdir -p dist
	version=$$($(BIN)/python deploy/version.py) && sed "s/^dynamic = \[\"version\"\]/version = \"$$version\"/" \
		pyproject.toml >$(TOOLS)/pyproject.toml
	$(TOOLS)/bin/cyclonedx-py environment --pyproject $(TOOLS)/pyproject.toml --mc-type application \
		--output-reproducible --output-file dist/trocket.cdx.json $(TOOLS)/locked/bin/python

release: $(RELEASE)
	.ci/release $(TOOLS)/bin/python
	$(MAKE) --no-print-directory sbom
	$(TOOLS)/bin/twine check --strict dist/*.whl dist/*.tar.gz
	cd dist && sha256sum -- *.whl *.tar.gz *.json | tee SHA256SUMS

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml and the C sources once packages are installed and the C
# extension is built; without a C compiler pip leaves the extension out, and all is pure Python.
$(RUN): pyproject.toml setup.py deploy/wheel_parts.py native/sources.py $(wildcard native/*.c native/*.h)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "trocket needs Python 3.11 or newer, and $(PYTHON) is" \
			"$$($(PYTHON) --version 2>/dev/null || echo missing)." \
			"Name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up .venv (once)" >&2
	@$(PYTHON) -m venv .venv || { \
		echo "$(PYTHON) cannot make virtual environments;" \
			"on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli]'
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q $(COMPILED)
	@touch $@

$(TEST): $(RUN)
	@echo "adding what the tests need (once)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(DOCS): $(RUN)
	@echo "adding what the site needs (once)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli,docs]'
	@touch $@

$(RELEASE): $(RUN) Makefile
	@echo "adding the tools for releases (once)" >&2
	@$(BIN)/python -m venv --clear $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check $(RELEASE_TOOLS)
	@touch $@

$(SPARK): $(RUN)
	@{ java -version || test -x "$${JAVA_HOME:-/none}/bin/java"; } >/dev/null 2>&1 || { \
		echo "Spark needs Java 17 or newer, and there is no java;" \
			"on Debian and Ubuntu: apt-get install openjdk-17-jre-headless" >&2; exit 1; }
	@echo "adding Spark (once, 450 MB)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli,spark]'
	@touch $@
