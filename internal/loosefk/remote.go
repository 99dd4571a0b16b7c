package loosefk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/lease"
)

// Remote is another database in which parents have children. What is cleaned there is committed, durably, before the
// parent's tombstone goes: the successor of a worker that is killed in between finds the tombstone and nothing left to do.
type Remote struct {
	// Session is nil while the database cannot be reached; Err says why, Down for how long that has been so.
	Session *batch.Session
	Err     error
	Down    time.Duration
}

const (
	// StallAfter is how long another database may take beyond its statements' own timeouts. A network that swallows packets
	// must not hold up the work of a queue until its lease ends.
	StallAfter = 5 * time.Second
	// Tombstones that need a database which cannot be reached are put off for as long as it has been away, within these; those
	// of a definition that does not fit for the longer time.
	leastAway = 15 * time.Second
	mostAway  = time.Minute
)

// away notes the databases that cannot be reached as the run begins.
func (r *run) away() {
	_, _, others := r.far()
	for _, name := range others {
		if other := r.engine.Remotes[name]; other.Session == nil {
			r.down[name] = other.Err
		}
	}
}

// trouble is why nothing can be done about a reference, or nil.
func (r *run) trouble(reference *Reference) *batch.Fault {
	f := batch.Fault{Table: reference.Child.Label(), Message: reference.Broken, Verdict: batch.Unavailable}
	if reference.Broken != "" {
		return &f
	}
	err, down := r.down[reference.Database]
	if !down && !reference.Unreachable {
		return nil
	}
	f.Message = fmt.Sprintf("database %s cannot be reached", reference.Database)
	if err != nil {
		// The text of a server that is down names addresses and may have several lines.
		first, _, _ := strings.Cut(err.Error(), "\n")
		f.Message = first
		if !strings.Contains(first, "database "+reference.Database) {
			f.Message = fmt.Sprintf("database %s: %s", reference.Database, first)
		}
	}
	return &f
}

// troubleOf is the trouble of a parent's references: rather that of one that is broken, as it will not mend itself.
func (r *run) troubleOf(parent *Parent) *batch.Fault {
	if f, unreadable := r.unreadable[parent]; unreadable {
		return &f
	}
	var found *batch.Fault
	for _, reference := range parent.References {
		if f := r.trouble(reference); f != nil && (found == nil || reference.Broken != "") {
			found = f
		}
		if reference.Broken != "" {
			break
		}
	}
	return found
}

// in runs statements in the database named, the run's own or another one.
func (r *run) in(ctx context.Context, database string, limits batch.Limits, statements ...batch.Statement) ([]int64, error) {
	if database == r.engine.Database {
		return r.engine.Session.RunWithin(ctx, limits, statements...)
	}
	other := r.engine.Remotes[database]
	if _, down := r.down[database]; down {
		return nil, &batch.FaultError{Fault: batch.Fault{Message: fmt.Sprintf("database %s cannot be reached", database), Verdict: batch.Unavailable}}
	}
	limits.Durable = true
	calling, cancel := context.WithTimeout(ctx, time.Duration(len(statements))*limits.StatementTimeout+StallAfter)
	defer cancel()
	affected, err := other.Session.RunWithin(calling, limits, statements...)
	if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrLost) && !errors.Is(err, lease.ErrUnconfirmed) && batch.Judge(err).Verdict == batch.Fatal {
		// It is gone: the rest of the run does without.
		r.down[database] = err
		if r.engine.Lost != nil {
			r.engine.Lost(database, err)
		}
		return nil, &batch.FaultError{Fault: batch.Fault{Message: fmt.Sprintf("database %s: %v", database, err), Verdict: batch.Unavailable}}
	}
	return affected, err
}

// session is the one on the database that a reference's children live in.
func (r *run) session(reference *Reference) *batch.Session {
	if reference.Remote {
		return r.engine.Remotes[reference.Database].Session
	}
	return r.engine.Session
}

// databases are those in which the parent has children that can be looked at, its own first.
func (r *run) databases(parent *Parent) []string {
	var names []string
	for _, reference := range parent.References {
		if !slices.Contains(names, reference.Database) && r.trouble(reference) == nil {
			names = append(names, reference.Database)
		}
	}
	if at := slices.Index(names, parent.Database); at > 0 {
		names[0], names[at] = names[at], names[0]
	}
	return names
}

// childrenStatement returns those of keys, int64 or string as keysOf gives them, that have a child in a live reference of
// the database.
func (p *Parent) childrenStatement(database string, keys any, live []bool) (string, []any) {
	args := &drain.Args{}
	keysAt := args.Add(keys)
	_, form, key := p.candidate()
	terms := p.children(func(r *Reference) bool { return r.Database == database }, key, live, args)
	return fmt.Sprintf("SELECT candidate.key FROM pg_catalog.unnest($%d::%s[]) AS candidate (key)\nWHERE %s",
		keysAt, form, strings.Join(terms, "\nOR ")), args.Values
}

// candidate is a key that a statement asks about, in the alias candidate: the column of tombstones that has it, its type and its values.
func (p *Parent) candidate() (column, form string, key []string) {
	if p.Integer {
		return "primary_key_value", "bigint", []string{"candidate.key"}
	}
	return "primary_key_text", "pg_catalog.text", p.Stored("candidate.key")
}

// children are the terms, one per reference that is asked, for a child of the key where the reference is among the live ones.
func (p *Parent) children(asked func(*Reference) bool, key []string, live []bool, args *drain.Args) (terms []string) {
	liveAt := args.Once(live)
	for i, reference := range p.References {
		if reference.Usable() && asked(reference) {
			terms = append(terms, fmt.Sprintf("($%d::boolean[])[%d] AND %s", liveAt(), i+1, reference.Exists(key, args)))
		}
	}
	return terms
}

// withChildren returns the ones of keys that have children in references marked live.
func (r *run) withChildren(ctx context.Context, limits batch.Limits, parent *Parent, keys any, live []bool) (any, error) {
	found, asked := keysOf(parent, nil), map[string]bool{}
	for i, reference := range parent.References {
		if !live[i] || asked[reference.Database] {
			continue
		}
		asked[reference.Database] = true
		sql, args := parent.childrenStatement(reference.Database, keys, live)
		statement := batch.Statement{SQL: sql, Args: args, Scan: keysInto(&found)}
		if _, err := r.in(ctx, reference.Database, limits, statement); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// remote leaves the cursors of references to other databases: statements on the parent's own look at its children themselves.
func (p *Parent) remote(flags []bool) []bool {
	remote := slices.Clone(flags)
	for i, reference := range p.References {
		remote[i] = remote[i] && reference.Remote
	}
	return remote
}

// finished are the chunk's tombstones without the ones that still have children in other databases, in references marked in
// verify.
func (r *run) finished(ctx context.Context, c *chunk, verify []bool) ([]tombstone, error) {
	if !c.remote {
		return c.tombstones, nil
	}
	keys, err := r.withChildren(ctx, r.engine.Session.Limits, c.parent, keysOf(c.parent, c.tombstones), c.parent.remote(verify))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(c.tombstones), func(t tombstone) bool { return t.among(keys) }), nil
}

// putOffFor is how long tombstones wait whose parent's references have trouble.
func (r *run) putOffFor(parent *Parent) time.Duration {
	longest := leastAway
	if _, unreadable := r.unreadable[parent]; unreadable {
		return mostAway
	}
	for _, reference := range parent.References {
		_, down := r.down[reference.Database]
		switch {
		case reference.Broken != "":
			return mostAway
		case down || reference.Unreachable:
			longest = max(longest, r.engine.Remotes[reference.Database].Down)
		}
	}
	return min(longest, mostAway)
}
