package loosefk

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/fault"
	"sexton/internal/pgschema"
)

// A second look at a leaf that no index serves may take longer than a statement may, and than a run does. Ranges of blocks do
// not help here: each is read in a snapshot of its own, so a row that an application's UPDATE moves from a range that is still to
// come into one that is done is in none of them. No number of passes rules that out, as nothing tells which rows have moved.
//
// One statement has one snapshot, and finds every row that was committed before it, wherever that moves meanwhile. It begins
// after all transactions have ended that may have seen the parents, so no child comes behind it. Its answer stays true, hence it
// outlives the run: it has a connection of its own, writes nothing, and a later run takes its answer.

const (
	// longestLook bounds it, longRetry is how long its rows wait before a run asks for the answer, longKeys are the keys from which
	// on it takes no more rows.
	longestLook = time.Hour
	longRetry   = 5 * time.Second
	longKeys    = 50_000
	// longName is what its session is called. It holds no second look up, as it inserts nothing.
	longName = "sexton second look"
)

// longLook is a look at the children of the parents of some rows. Its results are valid once done is closed.
type longLook struct {
	ids []int64
	// of are the keys of the definitions whose children it looks for.
	of    []string
	done  chan struct{}
	found bool
	err   error
}

func (l *longLook) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// failure is why it failed. The run goes on, and another look is taken later.
func (l *longLook) failure() error {
	f := judge(&batch.StatementError{Err: l.err}, "")
	if f.Verdict == fault.Fatal {
		f.Verdict = fault.Timeout // It is about the look's own connection.
	}
	return &troubleError{f}
}

// covers reports whether it is over, and was about all these rows and definitions.
func (l *longLook) covers(ids []int64, of []string) bool {
	return l != nil && l.over() && !slices.ContainsFunc(ids, func(id int64) bool { return !slices.Contains(l.ids, id) }) &&
		!slices.ContainsFunc(of, func(key string) bool { return !slices.Contains(l.of, key) })
}

// question is the part of a look that one database answers.
type question struct {
	config *pgx.ConnConfig
	names  pgschema.Names
	sql    string
	args   []any
}

// ask reports whether there are any children.
func (q question) ask(ctx context.Context, limits batch.Limits) (found bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, q.config)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		const settings = `SELECT pg_catalog.set_config('statement_timeout', $1::pg_catalog.int8::pg_catalog.text, true),
			pg_catalog.set_config('lock_timeout', $2::pg_catalog.int8::pg_catalog.text, true),
			pg_catalog.set_config('application_name', $3, true), pg_catalog.set_config('row_security', 'off', true)`
		if _, err := tx.Exec(ctx, settings, longestLook.Milliseconds(), limits.LockTimeout.Milliseconds(), longName); err != nil {
			return err
		}
		if err := batch.UsePath(ctx, tx, q.names); err != nil {
			return err
		}
		var live []bool
		err := tx.QueryRow(ctx, q.sql, q.args...).Scan(&live)
		found = slices.Contains(live, true)
		return err
	})
	return found, err
}

// long are the parent's references whose leaves take too long to be read in one statement of a run.
func (p *Parent) long() []*Reference {
	return slices.DeleteFunc(slices.Clone(p.References), func(r *Reference) bool {
		return r.Index || !r.usable() || r.blocks == 0 && !r.readsLong
	})
}

// tooLong notes that a second look has timed out, and reports whether that is new of any reference.
func (p *Parent) tooLong() (news bool) {
	for _, r := range p.References {
		if !r.Index && r.usable() && !r.readsLong && r.blocks == 0 {
			r.readsLong, news = true, true
		}
	}
	return news
}

// longLook returns the finished look at rows of a parent, or nil while they have to wait for one. One look is under way at a time.
func (r *run) longLook(ctx context.Context, parent *Parent, rows []swept, keys any) (*longLook, error) {
	m, ids, long := r.engine.Marks, idsOf(rows), parent.long()
	of := make([]string, len(long))
	for i, reference := range long {
		of[i] = reference.Definition.Key
	}
	look := m.longLook()
	if look.covers(ids, of) {
		if look.err != nil {
			m.begin(nil, nil, batch.Limits{})
		}
		return look, nil
	}
	if look == nil || look.over() {
		var questions []question
		for _, database := range r.databases(parent) {
			at := slices.IndexFunc(long, func(reference *Reference) bool { return reference.Database == database })
			if at < 0 {
				continue
			}
			others := slices.DeleteFunc(slices.Clone(parent.References), func(other *Reference) bool { return slices.Contains(long, other) })
			session := r.session(long[at])
			sql, args := parent.probeStatement(database, keys, others...)
			questions = append(questions, question{session.Conn.Config(), session.Names, sql, args})
		}
		m.begin(&longLook{ids: ids, of: of, done: make(chan struct{})}, questions, r.engine.Session.Limits)
	}
	return nil, r.change(ctx, holdSQL, ids, longRetry.Seconds())
}

func (m *Marks) longLook() *longLook {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.look
}

// begin asks the questions of a look, one after the other, beside the runs. nil forgets the last look.
func (m *Marks) begin(look *longLook, questions []question, limits batch.Limits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.look = look; look == nil {
		return
	}
	go func() {
		defer close(look.done)
		ctx, cancel := context.WithTimeout(context.Background(), longestLook+time.Minute)
		defer cancel()
		for _, q := range questions {
			if look.found, look.err = q.ask(ctx, limits); look.found || look.err != nil {
				return
			}
		}
	}()
}
