package app

import (
	"fmt"
	"slices"
	"strings"

	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// elsewhere are the other databases that can be reached.
func (c *connections) elsewhere(than database.Database) map[string]pgcatalog.Beginner {
	others := map[string]pgcatalog.Beginner{}
	for _, db := range c.databases {
		if db.Name != than.Name && c.down[db.Name] == nil {
			others[db.Name] = db.Pool
		}
	}
	return others
}

// trackedIn is the schema of a database's tables whose names have none.
func (b *bound) trackedIn(name string) string {
	settings, _ := b.config.Database(name)
	return settings.Schema
}

// unbound are the definitions whose parents are in databases that cannot be reached: the others would have been refused.
func (b *bound) unbound() []definitions.Definition {
	bound := map[problem.Position]bool{}
	for _, parents := range b.parents {
		for _, parent := range parents {
			for _, reference := range parent.References {
				bound[reference.Definition.Position] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(b.definitions), func(d definitions.Definition) bool { return bound[d.Position] })
}

// downNames are the databases that cannot be reached, in their order.
func (c *connections) downNames() []string {
	var names []string
	for _, db := range c.databases {
		if c.down[db.Name] != nil {
			names = append(names, db.Name)
		}
	}
	return names
}

// addUnbound reports the definitions of which not even the parent is known.
func (d *auditDocument) addUnbound(all *bound, child definitions.Name) {
	down := strings.Join(all.downNames(), " or ")
	for _, one := range all.unbound() {
		if child.Table == "" || child == one.Child {
			d.add(down, loosefk.AuditReport{
				Definition: one.Key, Child: one.Child.String(), Column: one.ColumnList(), Parent: one.Parent.String(), Samples: []string{},
				Skipped: fmt.Sprintf("database %s cannot be reached", down),
			})
		}
	}
}

// childText names a child, with its database where that is not the parent's.
func childText(child, elsewhere string) string {
	if elsewhere == "" {
		return child
	}
	return child + " (" + elsewhere + ")"
}
