package cloudhttp

import (
	"context"
	"time"

	"github.com/coder/websocket"
)

// pingEvery is how often a connection is asked for a sign of life, and pingWait how long that may take.
const (
	pingEvery = 15 * time.Second
	pingWait  = 30 * time.Second
)

// KeepWatch asks conn for signs of life until ctx is done, and closes one that gives none.
func KeepWatch(ctx context.Context, conn *websocket.Conn) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		pingCtx, cancel := context.WithTimeout(ctx, pingWait)
		err := conn.Ping(pingCtx)
		cancel()
		if err != nil {
			_ = conn.CloseNow()
			return
		}
	}
}
