package singularity

import "testing"

func TestWhatAClientSaysBesideTheFaultIsLeftOut(t *testing.T) {
	const starter = "FATAL:   while executing starter: failed to start instance: while running /usr/lib/apptainer/bin/starter: exit status 255\n"
	for said, want := range map[string]string{
		"ERROR:   container cleanup failed: no instance found with name x\nFATAL:   container creation failed: no cgroups\n\n" + starter: "container creation failed: no cgroups",
		"INFO:    fine\n" + starter:                   "while executing starter: failed to start instance: while running /usr/lib/apptainer/bin/starter: exit status 255",
		"\x1b[31mFATAL:   one\x1b[0m\nWARNING: two\n": "one; two",
	} {
		if got := quiet(said); got != want {
			t.Errorf("%q is %q, want %q", said, got, want)
		}
	}
	if got := reason(&callError{what: "apptainer instance start", stderr: "no cgroups"}); got != "no cgroups" {
		t.Errorf("%q", got)
	}
}
