package elsewhere

import "testing"

func TestOnlySudoThatMayAskIsChanged(t *testing.T) {
	for command, want := range map[string]string{
		"sudo id":                           "sudo -A id",
		"sudo -n true":                      "sudo -n true",
		"sudo -nE true":                     "sudo -nE true",
		"sudo --non-interactive true":       "sudo --non-interactive true",
		"echo x | sudo -S id":               "echo x | sudo -S id",
		"sudo -A id":                        "sudo -A id",
		"sudo -u bob id -n":                 "sudo -A -u bob id -n",
		"/usr/bin/sudo id":                  "/usr/bin/sudo -A id",
		"env A=1 sudo id":                   "env A=1 sudo -A id",
		"A=1 sudo B=2 id":                   "A=1 sudo -A B=2 id",
		"echo sudo rm; echo 'a; sudo id'":   "echo sudo rm; echo 'a; sudo id'",
		"grep sudo file":                    "grep sudo file",
		"sudo -k":                           "sudo -k",
		"a && sudo id\nx=$(sudo id -u); :":  "a && sudo -A id\nx=$(sudo -A id -u); :",
		"if sudo id; then sudo ls | wc; fi": "if sudo -A id; then sudo -A ls | wc; fi",
		"f() { sudo id; }; f":               "f() { sudo id; }; f",
		"cat <<E\nsudo id\nE\nsudo id":      "cat <<E\nsudo id\nE\nsudo -A id",
		"echo größe; sudo id <größe":        "echo größe; sudo -A id <größe",
		"xargs sudo id":                     "xargs sudo id", // not seen
		"sudo 'unclosed":                    "sudo 'unclosed",
	} {
		if got := withAskpass(command); got != want {
			t.Errorf("%q became %q, want %q", command, got, want)
		}
	}
}
