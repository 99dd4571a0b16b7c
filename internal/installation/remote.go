package installation

import (
	"slices"

	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Elsewhere are the other databases that can be reached.
func (c *Connections) Elsewhere(than database.Database) map[string]pgcatalog.Beginner {
	others := map[string]pgcatalog.Beginner{}
	for _, db := range c.Databases {
		if db.Name != than.Name && c.Down[db.Name] == nil {
			others[db.Name] = db.Pool
		}
	}
	return others
}

// TrackedIn is the schema of a database's tables whose names have none.
func (b *Bound) TrackedIn(name string) string {
	settings, _ := b.Config.Database(name)
	return settings.Schema
}

// Unbound are the definitions whose parents are in databases that cannot be reached: the others would have been refused.
func (b *Bound) Unbound() []definitions.Definition {
	bound := map[problem.Position]bool{}
	for _, parents := range b.Parents {
		for _, parent := range parents {
			for _, reference := range parent.References {
				bound[reference.Definition.Position] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(b.Definitions), func(d definitions.Definition) bool { return bound[d.Position] })
}

// DownNames are the databases that cannot be reached, in their order.
func (c *Connections) DownNames() []string {
	var names []string
	for _, db := range c.Databases {
		if c.Down[db.Name] != nil {
			names = append(names, db.Name)
		}
	}
	return names
}
