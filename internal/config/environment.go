package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

const prefix = "SEXTON_"

// override lays the environment and --database-url over the file.
func (l *loader) override(doc *yamlfile.Document) {
	names, readable := fileDatabases(doc)
	if readable && len(names) == 0 {
		names = l.addDatabases(doc)
	}
	resolver := newResolver(names)
	for _, variable := range slices.Sorted(maps.Keys(l.environ)) {
		if !strings.HasPrefix(variable, prefix) || !resolver.concerned(variable) {
			continue
		}
		if !readable && strings.HasPrefix(variable, prefix+"DATABASES") {
			continue
		}
		leaf, ok := resolver.leaves[variable]
		if !ok {
			l.problems.Add(resolver.unknown(variable))
			continue
		}
		l.problems.Add(doc.Override(variable, l.environ[variable], leaf.List, leaf.Path...)...)
	}
	if l.options.DatabaseURL != "" && len(names) > 0 {
		l.setURL(doc, names[0], "--database-url", l.options.DatabaseURL)
		l.problems.Add(doc.Override("--database-url", "", false, "databases", names[0], "listen_url")...)
	}
}

// addDatabases puts the databases of the environment and the flag where the file lists
// none.
func (l *loader) addDatabases(doc *yamlfile.Document) []string {
	names := l.ownDatabases()
	for _, name := range names {
		// Their other keys follow with all other variables; this settles the order.
		variable := variableName([]string{"databases", name, "url"})
		l.setURL(doc, name, variable, l.environ[variable])
	}
	if len(names) > 0 {
		return names
	}
	source, url := "--database-url", l.options.DatabaseURL
	if url == "" {
		source, url = "DATABASE_URL", l.environ["DATABASE_URL"]
	}
	if url == "" {
		return nil
	}
	l.setURL(doc, "main", source, url)
	return []string{"main"}
}

func (l *loader) setURL(doc *yamlfile.Document, name, source, url string) {
	l.problems.Add(doc.Override(source, url, false, "databases", name, "url")...)
}

// fileDatabases returns the names in the file's list, and whether it is a list at all.
func fileDatabases(doc *yamlfile.Document) (names []string, readable bool) {
	var file struct {
		Databases []struct {
			Name string `yaml:"-"`
		} `yaml:"databases,keyed"`
	}
	_, problems := doc.Decode(doc.Root, "", &file)
	for _, database := range file.Databases {
		names = append(names, database.Name)
	}
	return names, !slices.ContainsFunc(problems, func(p problem.Problem) bool { return p.Key == "databases" })
}

// ownDatabases are the databases whose url is a variable, main first.
func (l *loader) ownDatabases() []string {
	var names []string
	for variable := range l.environ {
		name, ok := strings.CutPrefix(variable, prefix+"DATABASES__")
		if !ok {
			continue
		}
		name, ok = strings.CutSuffix(name, "__URL")
		if ok && databaseName.MatchString(strings.ToLower(name)) && name == strings.ToUpper(name) {
			names = append(names, strings.ToLower(name))
		}
	}
	slices.Sort(names)
	if i := slices.Index(names, "main"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "main")
	}
	return names
}

// URLVariable returns the environment variable from which the URL of a database was read,
// or from which a configuration without a file would read it.
func (c *Config) URLVariable(name string) string {
	path := []string{"databases", name, "url"}
	variable := variableName(path)
	if source := c.positions[strings.Join(path, ".")].Source; name == "main" && source != variable {
		return "DATABASE_URL"
	}
	return variable
}

// resolver knows the variable of every key.
type resolver struct {
	leaves   map[string]yamlfile.Leaf
	sections []string
	names    []string
}

func newResolver(names []string) resolver {
	r := resolver{leaves: map[string]yamlfile.Leaf{}, names: names}
	for _, leaf := range yamlfile.Leaves(reflect.TypeFor[Config]()) {
		if section := strings.ToUpper(leaf.Path[0]); !slices.Contains(r.sections, section) {
			r.sections = append(r.sections, section)
		}
		star := slices.Index(leaf.Path, "*")
		if star < 0 {
			r.leaves[variableName(leaf.Path)] = leaf
			continue
		}
		for _, name := range names {
			concrete := yamlfile.Leaf{Path: slices.Clone(leaf.Path), List: leaf.List}
			concrete.Path[star] = name
			r.leaves[variableName(concrete.Path)] = concrete
		}
	}
	return r
}

func variableName(path []string) string {
	return prefix + strings.ToUpper(strings.Join(path, "__"))
}

// concerned tells the variables that mean a key from SEXTON_CONFIG, SEXTON_PG_BIN and
// what others may set.
func (r resolver) concerned(variable string) bool {
	name := strings.ToUpper(strings.TrimPrefix(variable, prefix))
	if strings.Contains(name, "__") {
		return true
	}
	return slices.ContainsFunc(r.sections, func(section string) bool {
		return name == section || strings.HasPrefix(name, section+"_")
	})
}

func (r resolver) unknown(variable string) problem.Problem {
	p := problem.Problem{Key: variable, Message: "the variable names no key of the configuration"}
	path := strings.ToLower(strings.TrimPrefix(variable, prefix))
	if fix := yamlfile.Instead(strings.ReplaceAll(path, "__", ".")); fix != "" {
		p.Message, p.Fix = "was removed", fix
		return p
	}
	if name, ok := strings.CutPrefix(path, "databases__"); ok {
		if !slices.ContainsFunc(r.names, func(known string) bool { return strings.HasPrefix(name+"__", known+"__") }) {
			return r.unknownDatabase(variable)
		}
	}
	known := slices.Sorted(maps.Keys(r.leaves))
	p.Fix = problem.Meant(variable, known, "two underscores stand between the levels, as in SEXTON_LOG__LEVEL")
	return p
}

func (r resolver) unknownDatabase(variable string) problem.Problem {
	p := problem.Problem{Key: variable, Message: "the variable names a database that is not configured"}
	if len(r.names) == 0 {
		p.Fix = "set its URL as well, as in SEXTON_DATABASES__MAIN__URL"
		return p
	}
	p.Fix = "the databases are " + strings.Join(r.names, ", ")
	return p
}
