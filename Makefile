# make quick     sets everything up, measures this machine for five minutes, and writes quick.html about it
# make test      sets everything up, TensorFlow, JAX and two legacy frameworks included; checks, and tests for some minutes
# make test-all  the same tests in depth, on every framework that is installed, and the zoo; takes hours
# make legacy    also makes legacy frameworks and further ones of today, and tests them
# make test-zoo  tries every network of the zoo on every framework that is installed; takes hours

VENV ?= .venv
BIN := $(VENV)/bin
SETUP := scripts/environment.sh pyproject.toml

# The tests run every framework for real, from here.
ENVIRONMENTS := $(abspath $(VENV))/environments

# Legacy frameworks, and further ones of today. `make test-all` tries those that are installed; this makes them, and tries all.
LEGACY := torch@1.1.0 mxnet chainer chainer@7.8.1-ideep theano cntk tensorflow@1.12.0 tensorflow@1.12.0-intel tensorflow@1.2.1
LEGACY += paddle onnxruntime
# Neon and Torch7 have no recipe: the tests try them where they have been adopted (deepstone env add neon --python PATH).
# A Debian of its own is made and run by root only, with debootstrap.
LEGACY += $(if $(filter 0,$(shell id -u)),caffe)

# Most tests wait for a process of their own on one thread, so three keep two cores busy. tests/conftest.py says which ones
# stay together, and the order.
THREE_AT_A_TIME := -n 3 --dist loadscope --no-loadscope-reorder
# Everything but the zoo, as deep as it goes.
DEEP := -m "not zoo" --hypothesis-profile deep

.PHONY: quick test test-all test-zoo check environments legacy format clean

quick: $(VENV)/.deepstone-installed
	$(BIN)/deepstone doctor
	$(BIN)/deepstone study quick --store quick-results --report quick.html

test: check environments
	scripts/test.sh $(BIN)/python $(THREE_AT_A_TIME)

test-all: check environments
	scripts/test.sh $(BIN)/python $(THREE_AT_A_TIME) $(DEEP)
	$(MAKE) test-zoo

# One at a time: some of these networks need all memory and cores there are.
test-zoo: environments
	$(BIN)/python -m pytest tests/cli/test_cli_zoo.py -m zoo

environments: $(VENV)/.deepstone-checks-installed
	DEEPSTONE_ENVIRONMENTS=$(ENVIRONMENTS) $(BIN)/deepstone env add tensorflow jax mxnet chainer

legacy: environments
	DEEPSTONE_ENVIRONMENTS=$(ENVIRONMENTS) $(BIN)/deepstone env add $(LEGACY)
	DEEPSTONE_TEST_LEGACY=1 $(BIN)/python -m pytest tests/backends $(THREE_AT_A_TIME) -k "torch-1.1.0 or mxnet or chainer or theano or cntk or tensorflow-1 or caffe or neon or torch7 or paddle or onnxruntime or legacy"

check: $(VENV)/.deepstone-checks-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

format: $(VENV)/.deepstone-checks-installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV)

$(VENV)/.deepstone-installed: $(SETUP)
	@echo "setting up $(VENV) (the first time this downloads torch)"
	@scripts/environment.sh $(VENV) figures
	@touch $@

$(VENV)/.deepstone-checks-installed: $(SETUP)
	@echo "setting up $(VENV) with the tools for checks and tests"
	@scripts/environment.sh $(VENV) dev
	@touch $@ $(VENV)/.deepstone-installed
