//go:build unix

package elsewhere

import (
	"context"
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// BenchmarkPermit is what the look at a small command costs a call on local.
func BenchmarkPermit(b *testing.B) {
	for name, enabled := range map[string]string{"checked": "true", "unchecked": "false"} {
		b.Run(name, func(b *testing.B) {
			cfg, err := config.Load(config.Options{
				Backends: []driver.Backend{local.Backend()}, Flags: map[string]string{"policy.enabled": enabled}, Home: b.TempDir(), Dir: b.TempDir(),
			})
			if err != nil {
				b.Fatal(err)
			}
			s, err := Open(b.Context(), cfg, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close(context.Background())
			if _, err := s.Run(b.Context(), "true", nil); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.permitCommand(b.Context(), "run", "cd src && go test ./... 2>&1 | tail -20", "", nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
