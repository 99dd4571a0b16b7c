package doctor

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/problem"
)

// Offsets of the clock from which schedules are noticeably wrong.
const (
	clockWarning = time.Second
	clockError   = 5 * time.Second
)

// clock compares this machine's clock with the server's. Of several round trips the shortest says most.
func (t Target) clock(ctx context.Context) ([]Finding, error) {
	now := t.Now
	if now == nil {
		now = time.Now
	}
	var offset, uncertain time.Duration
	for i := range 3 {
		var server time.Time
		sent := now()
		if err := t.Database.Pool.QueryRow(ctx, "SELECT pg_catalog.clock_timestamp()").Scan(&server); err != nil {
			return nil, fmt.Errorf("ask for the server's time: %w", err)
		}
		half := now().Sub(sent) / 2
		if i == 0 || half < uncertain {
			offset, uncertain = server.Sub(sent.Add(half)), half
		}
	}
	return judgeClock(offset, uncertain), nil
}

// judgeClock counts only what the round trip cannot explain. A positive offset means that the server is ahead.
func judgeClock(offset, uncertain time.Duration) []Finding {
	certain := offset.Abs() - uncertain
	if certain <= clockWarning {
		return nil
	}
	severity, direction := problem.Warning, "ahead of"
	if certain > clockError {
		severity = problem.Error
	}
	if offset > 0 {
		direction = "behind"
	}
	return one(severity, "clock", fmt.Sprintf("this machine's clock is %s %s the server's: schedules follow the one, everything else the other",
		offset.Abs().Round(100*time.Millisecond), direction), "have NTP keep both clocks")
}
