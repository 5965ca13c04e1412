package main

// onResize calls changed once: consoles send no signal.
func onResize(changed func()) (stop func()) {
	changed()
	return func() {}
}
