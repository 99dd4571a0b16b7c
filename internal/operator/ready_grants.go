package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/internal/recent"
)

const (
	// grantsFor is for how long a look at the role's rights is shared: it asks the catalogue about some sixty objects.
	grantsFor     = 30 * time.Second
	grantsTimeout = 2 * time.Second
	// grantsShown is how many of them are reasons of their own.
	grantsShown = 3
)

// grantsOf are the rights that a worker needs, with the names that doctor reads them by.
func grantsOf(schema migrate.Database) string {
	schema.JobsSchema, schema.TrackedSchema = "sexton", "public"
	return migrate.Grants(schema)
}

// WatchGrants prepares the look at the rights of each database's role. Parents are by the name of their database.
func (r *Readiness) WatchGrants(parents map[string][]*loosefk.Parent) {
	r.grants = nil
	for at, schema := range r.all.Schemas() {
		r.grants = append(r.grants, &recent.Value[[]string]{Timeout: grantsTimeout, Keep: grantsFor, Read: func(ctx context.Context) []string {
			lost, err := lostGrants(ctx, r.all, at, grantsOf(schema), parents)
			if err != nil {
				// What keeps a database from answering is found beside this.
				return nil
			}
			if more := len(lost) - grantsShown; more > 0 {
				lost = append(lost[:grantsShown], fmt.Sprintf("%d more rights are missing: sexton doctor names them", more))
			}
			return lost
		}})
	}
}

// lostGrants says which rights the role of one database lacks for Sexton's own tables and for the tables that it cleans up, each with its GRANT.
func lostGrants(ctx context.Context, all *installation.Connections, at int, grants string, parents map[string][]*loosefk.Parent) ([]string, error) {
	db := all.Databases[at]
	own, err := doctor.Target{Database: db, Grants: grants}.MissingRights(ctx)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, finding := range own {
		lost = append(lost, fmt.Sprintf("%s (%s)", finding.Message, finding.Fix))
	}
	unreadable, err := loosefk.UnreadableParents(ctx, db.Pool, parents[db.Name])
	if err != nil {
		return nil, err
	}
	missing, err := installation.ChildPrivileges(ctx, db, parents)
	if err != nil {
		return nil, err
	}
	for _, p := range append(unreadable, missing...) {
		sentence := fmt.Sprintf("%s (%s)", p.Message, p.Fix)
		if p.Position.File == "" {
			sentence = p.Key + ": " + sentence
		}
		if !slices.Contains(lost, sentence) {
			lost = append(lost, sentence)
		}
	}
	return lost, nil
}
