package pace

import (
	"context"
	_ "embed"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

//go:embed queries/neighbours.sql
var neighboursSQL string

const (
	// Two looks are lookEvery apart, or costly times as long as the last one took, but no more than lookSeldom.
	lookEvery, lookSeldom = 50 * time.Millisecond, time.Second
	costly                = 20
	// Each refused query is a line in the server's log.
	lookAgain = time.Minute
)

// serverNeighbours are the others on one database's server, and its replicas. All passes of the process share the looks.
type serverNeighbours struct {
	Neighbours

	mu sync.Mutex
	// looked is when the last look began, due when the next one may.
	looked, due time.Time
	// clear is when no replica was too far behind, hidden reports that replicas hide their state.
	clear  time.Time
	hidden bool
}

// Share decides at which share of its time a pass works: by the others on the servers that it writes to. It is for between batches. Nil
// leaves that to a fixed duty. Behind the first batch of a pass it does not look: a wake-up has found its work then, and would wait for the answer.
func (t *Others) Share(duty float64) Share {
	if duty != 0 {
		return nil
	}
	begun := false
	return func(ctx context.Context, locked bool) (least float64, told Duty) {
		looks := begun
		begun = true
		for i, at := range t.targets {
			share, why := t.memory.on(at.DB.Name).share(ctx, at.Session.Conn, looks, locked)
			if i == 0 || share < least {
				least, told = share, why
			}
		}
		return least, told
	}
}

func (m *OthersMemory) on(name string) *serverNeighbours {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.neighbours == nil {
		m.neighbours = map[string]*serverNeighbours{}
	}
	if m.neighbours[name] == nil {
		m.neighbours[name] = &serverNeighbours{}
	}
	return m.neighbours[name]
}

func (n *serverNeighbours) share(ctx context.Context, conn *pgx.Conn, looks, locked bool) (float64, Duty) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if began := time.Now(); looks && !conn.IsClosed() && !began.Before(n.due) {
		n.due = began.Add(lookSeldom) // Another pass must not wait for this one's connection.
		if n.look(ctx, conn, began) {
			n.due = began.Add(min(max(lookEvery, costly*time.Since(began)), lookSeldom))
		} else {
			n.due = began.Add(lookAgain)
		}
	}
	return n.Neighbours.Share(locked)
}

// look reads the transactions of other sessions, without the lock meanwhile. It reports false if the role may not read them.
func (n *serverNeighbours) look(ctx context.Context, conn *pgx.Conn, now time.Time) bool {
	n.mu.Unlock()
	rows, _ := conn.Query(ctx, neighboursSQL)
	others, err := pgx.CollectRows(rows, pgx.RowTo[string])
	n.mu.Lock()
	switch {
	case err != nil && ctx.Err() != nil: // A pass that is asked to stop says nothing to others.
		return true
	case err != nil:
		n.Blind(now, err.Error())
	default:
		n.Saw(now, others)
	}
	n.looked = now
	return pgcatalog.SQLState(err) != "42501"
}
