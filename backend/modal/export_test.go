package modal

import "github.com/elsewhere-sh/elsewhere/driver"

// Abandon does to a sandbox value what KILL does to its process: the kernel frees the lock, and nothing else happens.
func Abandon(sb driver.Sandbox) {
	s := sb.(*sandbox)
	s.closed.Store(true)
	s.cancel(errClosed)
	s.work.Wait()
	s.giveUp()
	s.account.close()
}
