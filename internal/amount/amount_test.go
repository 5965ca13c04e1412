package amount

import "testing"

func TestOneIsNotMany(t *testing.T) {
	for got, want := range map[string]string{
		Of(1, "CPU"): "1 CPU", Of(int64(1), "vCPU"): "1 vCPU", Of(1.0, "CPU"): "1 CPU", Of(0.5, "CPU"): "0.5 CPUs", Of(1.5, "CPU"): "1.5 CPUs",
		Of(int64(12), "vCPU"): "12 vCPUs", Of(0, "CPU"): "0 CPUs", Of(1e6, "CPU"): "1000000 CPUs",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
