package daytona

import (
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// planOf makes a plan from settings, pairs of key and value.
func planOf(t *testing.T, cloud bool, settings ...string) (*plan, error) {
	t.Helper()
	flags := map[string]string{"backend": "daytona"}
	for i := 0; i+1 < len(settings); i += 2 {
		flags[settings[i]] = settings[i+1]
	}
	home := t.TempDir()
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{Backend()}, Flags: flags, Environ: []string{"HOME=" + home}, Home: home})
	if err != nil {
		t.Fatal(err)
	}
	return makePlan(driver.OpenRequest{Config: cfg, Task: "web", Identity: driver.Identity{ID: "me", Profile: "default", Home: home}}, cloud)
}

func TestSizesAreWholeAndCappedByTheHostedServiceAlone(t *testing.T) {
	for _, c := range []struct {
		name              string
		cloud             bool
		settings          []string
		cpu, memory, disk int64
		told              bool
	}{
		{"the defaults, hosted", true, nil, 1, 5, 10, false},
		{"the defaults, a server of one's own", false, nil, 1, 5, 50, false},
		{"rounded up", true, []string{"container_cpu", "1.2", "container_memory", "1025", "container_disk", "2049"}, 2, 2, 3, false},
		{"a disk that is too big, hosted", true, []string{"container_disk", "51200"}, 1, 5, 10, true},
		{"the same, a server of one's own", false, []string{"container_disk", "51200"}, 1, 5, 50, false},
		{"no limits of ours", true, []string{"container_cpu", "0", "container_memory", "0", "container_disk", "0"}, 0, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := planOf(t, c.cloud, c.settings...)
			if err != nil {
				t.Fatal(err)
			}
			if b := p.body; b.CPU != c.cpu || b.Memory != c.memory || b.Disk != c.disk {
				t.Errorf("%d CPUs, %d GiB, %d GiB", b.CPU, b.Memory, b.Disk)
			}
			if told := strings.Contains(strings.Join(p.notices, " "), "container_disk"); told != c.told {
				t.Errorf("notices %q", p.notices)
			}
		})
	}
}

func TestWhatASandboxIsMadeFrom(t *testing.T) {
	p, err := planOf(t, true, "daytona_image", "debian:12", "daytona_network_block_all", "true")
	if err != nil || p.body.Build == nil || p.body.Build.Dockerfile != "FROM debian:12\n" || p.body.Snapshot != "" || !p.body.BlockAll || p.settings["network"] != "none" || !p.persist || p.body.AutoStop != 15 || p.body.AutoDelete != -1 {
		t.Errorf("%+v %v", p, err)
	}
	p, err = planOf(t, true, "daytona_create_mode", "snapshot", "daytona_snapshot", "mine", "container_memory", "1024")
	if err != nil || p.body.Build != nil || p.body.Snapshot != "mine" || p.body.Memory != 0 || len(p.notices) != 1 || !strings.Contains(p.notices[0], "container_memory") {
		t.Errorf("%+v %v", p, err)
	}
	for _, bad := range [][]string{{"daytona_create_mode", "snapshot"}, {"daytona_image", "two words"}, {"daytona_image", "debian\nRUN id"}, {"daytona_network_allow_list", `["10.0.0.0/8", "example.org"]`}, {"daytona_network_allow_list", `["10.1.2.3"]`}} {
		if p, err := planOf(t, true, bad...); err == nil || classify(err) != driver.KindConfig {
			t.Errorf("%q: %+v %v", bad, p, err)
		}
	}
	p, err = planOf(t, true, "daytona_network_allow_list", `["10.0.0.0/8", "2001:db8::/32"]`)
	if err != nil || p.body.BlockAll || p.body.Allow != "10.0.0.0/8,2001:db8::/32" || len(p.notices) != 0 {
		t.Errorf("%+v %v", p, err)
	}
	p, err = planOf(t, true, "daytona_network_allow_list", `["10.0.0.0/8"]`, "daytona_network_block_all", "true")
	if err != nil || !p.body.BlockAll || p.body.Allow != "" || len(p.notices) != 1 || !strings.Contains(p.notices[0], "not in force") {
		t.Errorf("%+v %v", p, err)
	}
	p, err = planOf(t, true, "container_persistent", "false", "daytona_auto_stop_interval", "0")
	if err != nil || p.persist || p.body.AutoDelete != 0 || len(p.notices) != 1 || !strings.Contains(p.notices[0], "paid for") {
		t.Errorf("%+v %v", p, err)
	}
}

func TestNamesTellWhoseASandboxIs(t *testing.T) {
	seen := map[string]string{}
	for _, scope := range []string{"task", "profile", "global"} {
		for _, id := range []driver.Identity{{ID: "a", Profile: "p"}, {ID: "b", Profile: "p"}, {ID: "a", Profile: "q"}} {
			for _, task := range []string{"web", "Web", "a b", "ä"} {
				name := sandboxName(driver.OpenRequest{Identity: id, Task: task}, "hermes", scope)
				whose := scope + "/" + id.ID
				if scope != "global" {
					whose += "/" + id.Profile
				}
				if scope == "task" {
					whose += "/" + task
				}
				if other, ok := seen[name]; ok && other != whose {
					t.Errorf("%s is of %s and of %s", name, whose, other)
				}
				seen[name] = whose
				if !strings.HasPrefix(name, "hermes-") || strings.ContainsAny(name, " ä") {
					t.Errorf("%q", name)
				}
			}
		}
	}
	if len(seen) != 12+3+2 {
		t.Errorf("%d names", len(seen))
	}
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"": hosted, "https://app.daytona.io/api/": hosted, "http://127.0.0.1:3000": "http://127.0.0.1:3000/api", "https://d.example.org/x/api": "https://d.example.org/x/api",
	} {
		if got, err := address(in); err != nil || got != want {
			t.Errorf("%q: %q %v", in, got, err)
		}
	}
	for _, bad := range []string{"daytona.example.org", "ftp://x", "https://"} {
		if got, err := address(bad); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}
