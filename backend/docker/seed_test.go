package docker

import (
	"io"
	"testing"
)

// The bash that has looked around in a container is the first one that is wanted, and is like any other.
func TestTheBashThatLookedAroundIsTheFirstOne(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("seed"))
	waits := s.seed.Load()
	if waits == nil {
		t.Fatal("none waits")
	}
	const look = `pwd; umask; env | grep -v -e '^_=' -e ELSEWHERE_CALL | sort; shopt -p; set +o; compgen -v | grep ew_; ulimit -a; echo "$# $0 $SHLVL"; exit 3`
	var first []byte
	for i := range 2 {
		p := bash(t, s, look)
		if one := p.(*process).exec == waits.exec; one != (i == 0) {
			t.Errorf("bash %d is the one that waited: %v", i, one)
		}
		_ = p.Stdin().Close()
		text, err := io.ReadAll(p.Stdout())
		if err != nil {
			t.Fatal(err)
		}
		if status, err := ended(t, p); err != nil || status.Code != 3 {
			t.Errorf("%+v, %v", status, err)
		}
		if i == 0 {
			first = text
		} else {
			sameBytes(t, "what the two see", first, text)
		}
	}
}
