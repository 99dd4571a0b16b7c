package drain

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/lease"
)

// remoteGrace is the time that a transaction in another database may take in addition to
// the timeouts of its statements.
const remoteGrace = 5 * time.Second

// drainRemote changes the rows of a chunk in another database. No snapshot covers both
// the parent and the child there. So drainRemote reads the children, then checks that the
// parents are deleted, and then changes exactly the row versions that it read. If another
// session inserts the parent again and makes an old child reference it, that row has a
// new version and is skipped.
func (s *session) drainRemote(ctx context.Context, c *chunk, e *Edge) error {
	d := &edgeDrain{session: s, c: c, e: e, began: time.Now()}
	unchanged, awaitLocks := 0, false
	for {
		if err := d.checkYield(ctx); err != nil {
			return err
		}
		rows, keys, err := d.readRemote(ctx)
		if err != nil || len(rows) == 0 {
			return err
		}
		changed, err := d.changeRemote(ctx, rows, keys, awaitLocks)
		switch {
		case batch.Judge(err).Verdict == batch.Timeout && len(rows) > 1:
			d.Sizes.shrink(e.sizeName(), len(rows))
			continue
		case err != nil:
			return withEdge(err, e)
		}
		d.pieces++
		d.reportChanged(ctx, c, e, changed)
		d.learn(e, len(rows), d.remoteDuration(e))
		if changed == 0 {
			if unchanged++; unchanged > mostLastWindows {
				return withEdge(&batch.FaultError{Fault: batch.Fault{Message: KeptRowsMessage, Verdict: batch.Row}}, e)
			}
			awaitLocks = true // The statement skipped all rows, so they are locked.
		}
	}
}

// readRemote returns versions of rows in another database. It also returns the keys whose
// parents had no row both before and after the rows were read.
func (d *edgeDrain) readRemote(ctx context.Context) (rows dml.Rows, keys dml.Keys, _ error) {
	deleted, err := d.deletedKeys(ctx, d.c, d.c.keys())
	if err != nil {
		return nil, keys, err
	}
	sql, args := d.e.Window(d.e.Leaf, "picked.ctid, picked.xmin", "", dml.Keys{Of: d.c.parent.Key, Values: deleted},
		d.rowsPerPiece(d.e))
	_, err = d.runRemote(ctx, d.e, d.on.Limits, batch.Statement{
		SQL: sql, Args: args,
		Scan: batch.Collect((*[]dml.Row)(&rows), dml.ScanRow),
	})
	if err != nil || len(rows) == 0 {
		return nil, keys, withEdge(err, d.e)
	}
	keys = d.keys(d.c, d.e)
	keys.Values, err = d.deletedKeys(ctx, d.c, deleted)
	return rows, keys, err
}

// deletedKeys returns the keys whose parent has no row.
func (s *session) deletedKeys(ctx context.Context, c *chunk, keys any) (any, error) {
	sql, args := c.parent.Missing(keys)
	limits := s.on.Limits
	limits.Reads = true
	if c.parent.Integer {
		found := []int64{}
		_, err := s.run(ctx, limits, batch.Statement{
			SQL: sql, Args: args,
			Scan: batch.Collect(&found, pgx.RowTo[int64]),
		})
		return found, err
	}
	found := []string{}
	_, err := s.run(ctx, limits, batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&found, pgx.RowTo[string])})
	return found, err
}

// changeRemote changes row versions in another database and returns their number. It
// skips locked rows unless awaitLocks is set.
func (d *edgeDrain) changeRemote(ctx context.Context, rows dml.Rows, keys dml.Keys,
	awaitLocks bool,
) (changed int64, _ error) {
	names := d.on.Names
	if remote := d.remoteSession(d.e); remote != nil {
		names = remote.Names
	}
	lock, stop := d.e.Lock()+" SKIP LOCKED", func() string { return "" }
	if awaitLocks {
		lock, stop = d.e.Lock(), d.watchHolder(ctx, d.e.Database)
	}
	affected, err := d.runRemote(ctx, d.e, d.on.Limits,
		d.e.statements(names, keys, &changed, func(keys dml.Keys) (string, []any) {
			return d.e.ExactStatement(names, d.e.Leaf, keys, rows, lock)
		})...)
	err = batch.AddBlocker(err, stop())
	if err == nil && !d.e.countsRows(keys) {
		changed = affected[len(affected)-1]
	}
	return changed, err
}

// runRemote runs one transaction in the database of an edge.
func (s *session) runRemote(ctx context.Context, e *Edge, limits batch.Limits,
	statements ...batch.Statement,
) ([]int64, error) {
	s.remoteMu.Lock()
	defer s.remoteMu.Unlock()
	remote := s.Remotes[e.Database]
	if remote == nil || remote.Session == nil {
		return nil, &batch.FaultError{Fault: s.unreachable(e)}
	}
	limits.Durable = true
	calling, cancel := context.WithTimeout(ctx, time.Duration(len(statements))*limits.StatementTimeout+remoteGrace)
	defer cancel()
	affected, err := remote.Session.RunWithin(calling, limits, statements...)
	if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrLost) && !errors.Is(err, lease.ErrUnconfirmed) &&
		batch.Judge(err).Verdict == batch.Fatal {
		s.markUnreachable(e.Database, err)
		return nil, &batch.FaultError{Fault: s.unreachable(e)}
	}
	return affected, err
}

// remoteDuration returns the duration of the last transaction in the database of an edge.
func (s *session) remoteDuration(e *Edge) time.Duration {
	s.remoteMu.Lock()
	defer s.remoteMu.Unlock()
	if remote := s.remoteSession(e); remote != nil {
		return remote.Took()
	}
	return 0
}

// remoteSession returns the session in the database of an edge, or nil if the database is
// unreachable. Another session of the pass may lose the connection at any time.
func (p *Pass) remoteSession(e *Edge) *batch.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if remote := p.Remotes[e.Database]; remote != nil {
		return remote.Session
	}
	return nil
}

// markUnreachable marks another database as unreachable for the rest of the pass.
func (p *Pass) markUnreachable(database string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	remote := p.Remotes[database]
	remote.Session, remote.Err = nil, err
	if p.Report.Lost != nil {
		p.Report.Lost(database, err)
	}
}

// unreachable returns the fault of an edge whose database is unreachable.
func (p *Pass) unreachable(e *Edge) batch.Fault {
	f := batch.Fault{
		Table: e.Child.Label(), Message: "database " + e.Database + " cannot be reached",
		Verdict: batch.Unavailable,
	}
	if remote := p.Remotes[e.Database]; remote != nil && remote.Err != nil {
		f.Message = batch.FirstLine(remote.Err, "database "+e.Database)
	}
	return f
}
