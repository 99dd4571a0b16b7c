package loosefk

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// A second look at a leaf that no index serves may take longer than a statement may, and than a run does. Ranges of blocks do
// not help here: each is read in a snapshot of its own, so a row that an application's UPDATE moves from a range that is still to
// come into one that is done is in none of them. No number of passes rules that out, as nothing tells which rows have moved.
//
// One statement has one snapshot, and finds every row that was committed before it, wherever that moves meanwhile. It begins
// after all transactions have ended that may have seen the parents, so no child comes behind it. Its answer stays true, hence it
// outlives the run: it has a connection of its own, writes nothing, and a later run takes its answer. It ends with its process.

const (
	// longestLook bounds it, longKeys are the keys from which on it takes no more rows. Rows wait between longRetry and rarestRetry,
	// half as long as a look has taken already, before a run asks for its answer.
	longestLook = time.Hour
	longRetry   = 5 * time.Second
	rarestRetry = 5 * time.Minute
	longKeys    = 50_000
	// mostFailures bounds the pause after looks that failed: 5 minutes for the first, then twice as long each time.
	mostFailures = 8
	// longName is the name of its session. It holds no second look up, as it inserts nothing: queries/horizon.sql leaves it out.
	longName = "sexton second look"
)

// longLook is a look at the children of the parents of some rows. Its results are valid once done is closed.
type longLook struct {
	ids []int64
	// of are the keys of the definitions whose children it looks for.
	of    []string
	began time.Time
	// failed is how many looks at the parent have failed in a row, told whether a run has reported the failure.
	failed int
	told   bool
	done   chan struct{}
	found  bool
	ended  time.Time
	err    error
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
	f := batch.FaultIn(&batch.StatementError{Err: l.err}, "")
	if f.Verdict == batch.Fatal {
		f.Verdict = batch.Timeout // It is about the look's own connection.
	}
	return &batch.FaultError{Fault: f}
}

// pause is how long the parent waits for its next look: after a failure always, and else while other parents wait for theirs.
func (l *longLook) pause() time.Duration {
	if l.err != nil {
		return rarestRetry << min(l.failed-1, mostFailures)
	}
	return restAfter(l.ended.Sub(l.began))
}

// restAfter is how long rows wait for a look that has taken so long.
func restAfter(took time.Duration) time.Duration { return max(longRetry, min(took/2, rarestRetry)) }

// about reports whether it is over and was about a row. Its ids ascend.
func (l *longLook) about(id int64) bool {
	if l == nil || !l.over() {
		return false
	}
	_, found := slices.BinarySearch(l.ids, id)
	return found
}

// covers reports whether it is over, and was about all these rows and definitions.
func (l *longLook) covers(ids []int64, of []string) bool {
	return l != nil && l.over() && !slices.ContainsFunc(ids, func(id int64) bool { return !l.about(id) }) &&
		!slices.ContainsFunc(of, func(key string) bool { return !slices.Contains(l.of, key) })
}

// question is the part of a look that one database answers.
type question struct {
	config *pgx.ConnConfig
	names  pgcatalog.Names
	sql    string
	args   []any
}

// ask reports whether there are any children.
func (q question) ask(ctx context.Context, limits batch.Limits) (found bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, q.config)
	if err != nil {
		return false, err
	}
	defer func() {
		_ = conn.Close(context.WithoutCancel(ctx))
		<-conn.PgConn().CleanupDone() // The server has been told to end the statement.
	}()
	bounds := Bounds{StatementTimeout: longestLook, LockTimeout: limits.LockTimeout}
	const more = "SET TRANSACTION READ ONLY; SET LOCAL application_name = '" + longName + "'; SET LOCAL client_connection_check_interval = '10s'"
	err = bounds.Run(ctx, conn, more, func(tx pgx.Tx) error {
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
		return r.Index || !r.Usable() || r.blocks == 0 && !r.readsLong
	})
}

// tooLong notes that a second look has timed out, and reports whether that is new of any reference.
func (p *Parent) tooLong() (news bool) {
	for _, r := range p.References {
		if !r.Index && r.Usable() && !r.readsLong && r.blocks == 0 {
			r.readsLong, news = true, true
		}
	}
	return news
}

// scans reports whether a look at the parent's children reads a whole table, so that it takes as long for fewer keys.
func (p *Parent) scans() bool {
	return slices.ContainsFunc(p.References, func(r *Reference) bool { return !r.Index && r.Usable() })
}

// longLook returns the finished look at rows of a parent, or nil while all its rows have to wait for one. One look is under way at
// a time.
func (r *run) longLook(ctx context.Context, parent *Parent, rows []recheck, keys any) (*longLook, error) {
	m, ids, long := r.cursors, idsOf(rows), parent.long()
	of := each.Of(long, func(reference *Reference) string { return reference.Definition.Key })
	look := m.longLook(parent.Recorded)
	if look.covers(ids, of) && !look.told {
		look.told = look.err != nil
		return look, nil
	}
	wait := m.waitFor(parent.Recorded)
	if wait == 0 {
		wait = longRetry
		questions, busy, err := r.questions(ctx, parent, long, keys)
		if err != nil {
			return nil, err
		}
		if !busy {
			slices.Sort(ids)
			m.begin(parent.Recorded, &longLook{ids: ids, of: of}, questions, r.engine.Session.Limits)
		}
	}
	return nil, r.change(ctx, "hold", ids, wait.Seconds(), &parent.Recorded)
}

// questions are what a look asks each database. busy reports that another process's look is under way in one of them.
func (r *run) questions(ctx context.Context, parent *Parent, long []*Reference, keys any) (questions []question, busy bool, err error) {
	for _, database := range r.databases(parent) {
		at := slices.IndexFunc(long, func(reference *Reference) bool { return reference.Database == database })
		if at < 0 {
			continue
		}
		looking := batch.Statement{SQL: statement("looking"), Args: []any{longName}, Scan: batch.One(&busy)}
		if _, err := r.in(ctx, database, r.engine.Session.Limits, looking); err != nil || busy {
			return nil, busy, err
		}
		others := slices.DeleteFunc(slices.Clone(parent.References), func(other *Reference) bool { return slices.Contains(long, other) })
		session := r.session(long[at])
		sql, args := parent.probeStatement(database, keys, others...)
		questions = append(questions, question{session.Conn.Config(), session.Names, sql, args})
	}
	return questions, false, nil
}

// looks are the second looks that take longer than a run. The answers are kept by parent: another parent's look drops none.
type looks struct {
	of map[string]*longLook
	// waiting are parents whose rows had to wait for another parent's look.
	waiting map[string]bool
	asking  sync.WaitGroup
	cancel  context.CancelFunc
	closed  bool
}

// longLook is the last one at a parent's children.
func (m *Cursors) longLook(parent string) *longLook {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.looks.of[parent]
}

// waitFor is how long a parent has to wait before its look may begin.
func (m *Cursors) waitFor(parent string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, look := range m.looks.of {
		if !look.over() {
			m.looks.waiting[parent] = true
			return restAfter(time.Since(look.began))
		}
	}
	delete(m.looks.waiting, parent)
	if last := m.looks.of[parent]; last != nil && (last.err != nil || len(m.looks.waiting) > 0) {
		return max(0, time.Until(last.ended.Add(last.pause())))
	}
	return 0
}

// begin asks the questions of a look, one after the other, beside the runs.
func (m *Cursors) begin(parent string, look *longLook, questions []question, limits batch.Limits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.looks.closed {
		return
	}
	if m.looks.of == nil {
		m.looks.of, m.looks.waiting = map[string]*longLook{}, map[string]bool{}
	}
	before := m.looks.of[parent]
	look.began, look.done = time.Now(), make(chan struct{})
	m.looks.of[parent] = look
	ctx, cancel := context.WithTimeout(context.Background(), longestLook+time.Minute)
	m.looks.cancel = cancel
	m.looks.asking.Go(func() {
		defer close(look.done)
		defer cancel()
		for _, q := range questions {
			if look.found, look.err = q.ask(ctx, limits); look.found || look.err != nil {
				break
			}
		}
		if look.ended = time.Now(); look.err != nil {
			look.failed = 1
			if before != nil {
				look.failed += before.failed
			}
		}
	})
}

// Close ends the look that is under way, and begins no other.
func (m *Cursors) Close() {
	m.mu.Lock()
	m.looks.closed = true
	if m.looks.cancel != nil {
		m.looks.cancel()
	}
	m.mu.Unlock()
	m.looks.asking.Wait()
}
