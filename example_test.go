package elsewhere_test

import (
	"context"
	"fmt"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/config"
)

func Example() {
	ctx := context.Background()
	cfg, err := config.Load(config.Options{Backends: all.Backends()})
	if err != nil {
		panic(err)
	}
	session, err := elsewhere.Open(ctx, cfg, nil)
	if err != nil {
		panic(err)
	}
	defer session.Close(ctx) //nolint:errcheck // nothing is kept
	_, err = session.Run(ctx, `cd /tmp && export A=1 && f() { echo "f:$A"; }`, nil)
	if err != nil {
		panic(err)
	}
	result, err := session.Run(ctx, "f; pwd", nil)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s%d", result.Output, result.ExitCode)
	// Output:
	// f:1
	// /tmp
	// 0
}
