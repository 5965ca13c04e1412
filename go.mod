module github.com/elsewhere-sh/elsewhere

go 1.26.0

require (
	github.com/gofrs/flock v0.13.2
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.50.0
)
