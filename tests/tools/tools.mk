# The real programs the tests run against; tests/tools/build says what and where. Included by the Makefile.
.PHONY: tools
tools: ## Build kube-apiserver, etcd and their like once, for the tests against a real API server
	@tests/tools/build
