package jobscript

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// Meta is what is known of a job when it is launched. The scripts read its first two fields after the id, which therefore stand in front
// of all that a user wrote.
type Meta struct {
	ID         string          `json:"id"` // 32 hexadecimal digits
	Supervisor string          `json:"supervisor"`
	Mark       bashscript.Mark `json:"mark"`
	Name       string          `json:"name"` // the short id
	Backend    string          `json:"backend"`
	Task       string          `json:"task"`
	Owner      string          `json:"owner"`
	Session    string          `json:"session"`
	SessionID  string          `json:"session_id"`
	Command    string          `json:"command"` // secrets masked, cut
	Created    time.Time       `json:"created"`
	LogBytes   int64           `json:"log_bytes"`
	Lifetime   time.Duration   `json:"lifetime_ns"`
	Terminal   bool            `json:"terminal,omitempty"`
}

// Line is Meta as the launcher writes it down.
func (m Meta) Line() (string, error) {
	b, err := json.Marshal(m)
	return string(b), err
}

// Found is what is known of one job.
type Found struct {
	Meta
	Running bool // its supervisor or the job itself lives
	Begun   bool // it was started; Started, PID and Input say more
	Started time.Time
	PID     int
	Input   bool
	Ended   bool // its end is written down
	Code    int
	Why     string // exited, killed or lifetime
	End     time.Time
	Whole   bool // no more output can come
	Left    int  // processes of it that live on although it has ended
}

// Kept is what is read of a job's output.
type Kept struct {
	From int64 // where Data begins
	Data []byte
	Job  *Found // nil where there is no such job
	// Overrun says that the window rolled over what was being read, so that Data is less than was asked for.
	Overrun bool
}

var errAnswer = errors.New("the answer from the sandbox is not whole")

// Whole tells whether all of an answer has come.
func Whole(token string, answer []byte) bool { return bytes.HasSuffix(answer, []byte(token+".\n")) }

// ParseList reads the answer to List.
func ParseList(token string, answer []byte) ([]*Found, error) {
	_, facts, err := split(token, answer)
	if err != nil {
		return nil, err
	}
	return parseFacts(facts), nil
}

// ParseRead reads the answer to Read.
func ParseRead(token string, answer []byte) (Kept, error) {
	data, facts, err := split(token, answer)
	if err != nil {
		return Kept{}, err
	}
	// What stands before the last X was overrun, and read again from another place.
	if at := bytes.LastIndex(data, []byte(token+"X ")); at >= 0 {
		data = data[at+len(token):]
	}
	head, data, ok := bytes.Cut(data, []byte("\n"))
	from, err := strconv.ParseInt(string(head[min(2, len(head)):]), 10, 64)
	if !ok || err != nil {
		return Kept{}, errAnswer
	}
	k := Kept{From: from, Data: data}
	if valid, _, _ := strings.Cut(strings.TrimPrefix(facts, "V "), "\n"); valid != "-1" {
		n, err := strconv.Atoi(valid)
		if err != nil || n > len(data) {
			return Kept{}, errAnswer
		}
		k.Data, k.Overrun = data[:n], true
	}
	if jobs := parseFacts(facts); len(jobs) > 0 {
		k.Job = jobs[0]
	}
	return k, nil
}

// ParseAct reads the answer to Act and Remove: ok, none (no such job), over (it has ended), deaf (it has no input), closed (its
// input was closed) or failed.
func ParseAct(token string, answer []byte) (string, error) {
	_, facts, err := split(token, answer)
	return strings.TrimSuffix(facts, "\n"), err
}

// split takes an answer apart: what stands before the token, and the lines behind it.
func split(token string, answer []byte) (data []byte, facts string, err error) {
	if !Whole(token, answer) {
		return nil, "", errAnswer
	}
	answer = answer[:len(answer)-len(token)-2]
	at := bytes.LastIndex(answer, []byte(token+"\n"))
	if at < 0 {
		return nil, "", errAnswer
	}
	return answer[:at], string(answer[at+len(token)+1:]), nil
}

func parseFacts(facts string) (jobs []*Found) {
	var f *Found
	for line := range strings.Lines(facts) {
		line = strings.TrimSuffix(line, "\n")
		kind, rest, _ := strings.Cut(line, " ")
		if kind == "M" {
			f = &Found{}
			if json.Unmarshal([]byte(rest), &f.Meta) == nil && f.ID != "" {
				jobs = append(jobs, f)
			}
			continue
		}
		if f == nil {
			continue
		}
		word := strings.Fields(rest)
		switch {
		case kind == "R" && len(word) == 7:
			f.Begun, f.Input = true, word[5] == "1"
			f.PID, _ = strconv.Atoi(word[2])
			f.Started = seconds(word[4])
		case kind == "E" && len(word) == 4:
			f.Ended, f.Why, f.End = true, word[1], seconds(word[2])
			f.Code, _ = strconv.Atoi(word[0])
		case kind == "I":
			f.Whole = strings.HasSuffix(rest, " !")
		case kind == "A":
			f.Running = rest == "1"
		case kind == "L" && len(word) == 2:
			for _, job := range jobs {
				if strconv.FormatUint(uint64(job.Mark), 10) == word[0] {
					job.Left, _ = strconv.Atoi(word[1])
				}
			}
		}
	}
	return jobs
}

// seconds reads a time that a bash without a clock writes as -.
func seconds(word string) time.Time {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}
