package config

// Value is what one setting is, where it came from and what that hid. A secret's value is never in it.
type Value struct {
	Key    string `json:"key"`
	Env    string `json:"env,omitempty"`
	Type   string `json:"type"`
	Doc    string `json:"doc"`
	Status string `json:"status"`
	// Value is the one in force, in text form.
	Value  string `json:"value"`
	Origin string `json:"origin"`
	// Used tells whether the chosen backend reads it.
	Used bool `json:"used"`
	// Problem says why the strongest origin was not taken: its value is not allowed, but the backend does not read it.
	Problem string `json:"problem,omitempty"`
	// Hidden are the other origins that set it, the strongest first.
	Hidden []Source `json:"hidden,omitempty"`
}

// Source is one origin of a setting with what is written there.
type Source struct {
	Origin string `json:"origin"`
	Value  string `json:"value"`
}

// Explain tells about the setting called key, with or without "terminal."; an older name will do. An unknown key is an
// *Error that names the nearest known one.
func (c *Config) Explain(key string) (Value, error) {
	row := c.lookup(key)
	if row == nil {
		return Value{}, c.unknownKey(key, "")
	}
	r := c.values[row.Key]
	v := Value{
		Key: path(row.Key), Env: row.Env, Type: string(row.Type), Doc: row.Doc, Status: string(row.Status),
		Value: shown(row, r.text), Origin: c.Origin(row.Key), Used: c.concerned(row),
	}
	hidden := r.sources
	if r.problem != nil {
		v.Problem = r.problem.Error()
	} else if len(hidden) > 0 {
		hidden = hidden[1:]
	}
	for _, src := range hidden {
		v.Hidden = append(v.Hidden, Source{Origin: src.origin(), Value: shown(row, src.text)})
	}
	return v, nil
}

// Shown is a value that the setting called key has or could have, as people see it: a secret's never, and of a map of them the names.
// The key is as for Explain; what no setting has is shown as it is.
func (c *Config) Shown(key, value string) string {
	row := c.lookup(key)
	if row == nil {
		return value
	}
	return shown(row, value)
}

// All explains every row in the order of the table.
func (c *Config) All() []Value {
	all := make([]Value, 0, len(c.rows))
	for i := range c.rows {
		// A key of the table is known.
		v, _ := c.Explain(c.rows[i].Key)
		all = append(all, v)
	}
	return all
}
