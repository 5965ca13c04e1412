//go:build unix

package mcpserver_test

import (
	"context"
	"testing"
)

// begin starts a background job, which the end of the test kills.
func (p *peer) begin(command string) string {
	p.t.Helper()
	id, _ := p.call("terminal", args{"command": command, "background": true}).job()["job_id"].(string)
	if id == "" {
		p.t.Fatalf("%s is no job", command)
	}
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, _ = p.try(ctx, "process", args{"action": "kill", "job_id": id})
	})
	return id
}

// comesBack calls process, which has to answer although the job goes on.
func (p *peer) comesBack(arguments args) reply {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := p.try(ctx, "process", arguments)
	switch {
	case err != nil:
		p.t.Fatalf("%v: %v", arguments, err)
	case r.IsError:
		p.t.Fatalf("%v: %s", arguments, r.text)
	case r.job()["state"] != "running" || r.out["end"] == true:
		p.t.Fatalf("%v: the job has ended: %s", arguments, r.text)
	}
	return r
}

func TestAJobThatPrintsWithoutEndHoldsNoCallUp(t *testing.T) {
	for name, command := range map[string]string{
		"as fast as it can":                "yes",
		"something between each two reads": "while :; do echo x; done",
	} {
		t.Run(name, func(t *testing.T) {
			u := newSetup(t, map[string]string{"job_log_max": "4MiB"}, nil)
			p := u.overStreams(u.server, nil)
			id := p.begin(command)
			first := p.comesBack(args{"action": "wait", "job_id": id, "timeout": 2})
			contains(t, first.text, "it still runs")
			if first.number("next") <= 0 {
				t.Errorf("nothing was read: %v", first.out)
			}
			// Each goes on where the last one ended.
			second := p.comesBack(args{"action": "poll", "job_id": id, "timeout": 30})
			if second.number("next") <= first.number("next") || second.number("from") < first.number("next") {
				t.Errorf("from %d to %d, then from %d to %d", first.number("from"), first.number("next"), second.number("from"), second.number("next"))
			}
			last := p.comesBack(args{"action": "log", "job_id": id, "limit": 100})
			if len(last.str("output")) != 100 || last.number("next") < second.number("next") {
				t.Errorf("%v", last.out)
			}
		})
	}
}
