package elsewhere

import "testing"

func TestASuggestedCommandNamesItsSandbox(t *testing.T) {
	for want, sb := range map[string]*Sandbox{
		"`elsewhere job logs -b docker --task web j1`":          {backend: "docker", task: "web"},
		"`elsewhere job logs -b local j1`":                      {backend: "local", task: DefaultTask},
		"`elsewhere job logs -b docker --task 'it'\\''s a' j1`": {backend: "docker", task: "it's a"},
	} {
		if got := sb.suggest("job logs", "j1"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
