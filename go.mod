module github.com/elsewhere-sh/elsewhere

go 1.26.0

require (
	github.com/gofrs/flock v0.13.2
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
	go.yaml.in/yaml/v3 v3.0.6
)

require (
	golang.org/x/sys v0.49.0
	mvdan.cc/sh/v3 v3.14.1
)
