package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// spent is the processor's time up to a moment: that of some sessions, and that of the whole server and this process.
type spent struct {
	sessions, all time.Duration
	// seen is true where the server's processes are seen from here, as Linux shows them.
	seen bool
}

// spent asks for the time of the sessions with these process IDs, and of everything.
func (s *Site) spent(ctx context.Context, sessions []uint32) (spent, error) {
	rows, _ := s.Admin.Query(ctx, "SELECT pid FROM pg_catalog.pg_stat_activity")
	all, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return spent{}, problem.Doing(err, "list sessions")
	}
	var sum spent
	for _, pid := range all {
		mine := slices.Contains(sessions, pid)
		title, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if mine && !bytes.Contains(title, []byte(s.Pool.Config().ConnConfig.Database)) {
			return spent{}, nil // The server is on another machine, and its numbers are those of other processes here.
		}
		took := running(fmt.Sprintf("/proc/%d/schedstat", pid))
		if sum.all += took; mine {
			sum.sessions += took
			sum.seen = true
		}
	}
	own, _ := os.ReadDir("/proc/self/task")
	for _, task := range own {
		sum.all += running("/proc/self/task/" + task.Name() + "/schedstat")
	}
	return sum, nil
}

// running is how long a task has run, 0 where that is not known: it may have ended.
func running(path string) time.Duration {
	text, _ := os.ReadFile(path)
	number, _, _ := strings.Cut(string(text), " ")
	nanoseconds, _ := strconv.ParseInt(number, 10, 64)
	return time.Duration(nanoseconds)
}

// since has the figures of a time in which so many transactions were committed.
func (s spent) since(before spent, commits int64, took time.Duration) turn {
	micros := func(d time.Duration) float64 { return ratio(float64(d.Nanoseconds())/1000, float64(commits)) }
	return turn{
		rate: float64(commits) / took.Seconds(), clientCPU: micros(s.sessions - before.sessions), cpu: micros(s.all - before.all),
		seen: s.seen && before.seen && commits > 0,
	}
}
