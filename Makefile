# What people and machines run here. Each target says first, in one line, what this machine lacks.
.DEFAULT_GOAL := help
.PHONY: help test demo bench chaos check image

help: ## what there is
	@echo "groundplane: the network control plane for Kubernetes on bare metal"
	@echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1  \2/p' $(MAKEFILE_LIST)

test: ## format, lint, build, every test, documentation, chart: one summary at the end
	@scripts/test.sh

check: ## what is quick: format, lint, unit tests
	@scripts/test.sh quick

demo: ## a story on a real API server, own addresses, then the sandbox cloud, then an API endpoint that moves (KEEP=1 stays up)
	@KEEP="$(KEEP)" scripts/program.sh demo

bench: ## measures against the ceiling of this machine (ONLY=measure, SIZE=full, CLOUD=cherry)
	@ONLY="$(ONLY)" SIZE="$(SIZE)" CLOUD="$(CLOUD)" scripts/program.sh bench

chaos: ## random faults by seeds, in simulated time and for real (SEED=0, RUNS=200, ONLY=simulation, endpoint or real)
	@SEED="$(SEED)" RUNS="$(RUNS)" ONLY="$(ONLY)" scripts/chaos.sh

image: ## the container image, groundplane:dev
	docker build -t groundplane:dev .
