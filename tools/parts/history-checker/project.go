package main

import "fmt"

// binding is the kind whose records are removed together with other records, and show no tag.
const binding = "RoleBinding"

// blockingKinds are the kinds whose records prevent the deletion of their group.
var blockingKinds = []string{"Group", "Identity", "Role"}

// world is a history, split by record, by the members of each group, and by name.
type world struct {
	records  map[string]*record
	lists    map[string][]*operation
	removals map[string][]removal
	// uses are operations that use the rights of an identity in a group. unseen are creations of its role bindings there with unknown uids.
	uses     map[string][]*operation
	unseen   map[string][]*operation
	names    map[string]map[string][]*claim
	failures []failure
}

func place(kind, parent string) string {
	return join(kind, parent)
}

func (w *world) record(kind, uid string) *record {
	key := join(kind, uid)
	r, found := w.records[key]
	if !found {
		r = &record{kind: kind, uid: uid}
		w.records[key] = r
	}
	return r
}

func (w *world) fail(partition string, ops int, info string) {
	w.failures = append(w.failures, failure{partition, ops, info})
}

// takeApart splits a history into a world. Obvious contradictions become failures at once.
func takeApart(history []*operation) *world {
	w := &world{
		records: map[string]*record{}, lists: map[string][]*operation{}, removals: map[string][]removal{},
		uses: map[string][]*operation{}, names: map[string]map[string][]*claim{},
	}
	w.nameCreations(history)
	w.findBindings(history)
	origin := map[*operation]*event{}
	for _, o := range history {
		w.project(o, origin)
	}
	makers := findMakers(history)
	w.unseen = makers
	made := w.createBindings(makers)
	w.addRemovals(history)
	lacked := w.lackedLists()
	w.matchMakers(made, makers, lacked)
	for _, key := range sortedKeys(w.records) {
		r := w.records[key]
		r.bound(lacked[r])
		if r.create == nil {
			w.checkUnmade(r)
		}
	}
	lives := w.lives()
	w.checkLists(lives)
	w.checkRefusals(history, lives)
	w.claimNames(history, origin)
	return w
}

// nameCreations finds the uids of unanswered creations, by the tag that their records show. The same tag on two records is a failure: one
// creation took effect twice.
func (w *world) nameCreations(history []*operation) {
	uids := map[string]map[string]bool{}
	see := func(tag, uid string) {
		if tag == "" || uid == "" {
			return
		}
		if uids[tag] == nil {
			uids[tag] = map[string]bool{}
		}
		uids[tag][uid] = true
	}
	for _, o := range history {
		if o.Outcome == "ok" || o.Action == "create" {
			see(o.Tag, o.UID)
		}
		for _, member := range o.Members {
			see(member.Tag, member.UID)
		}
	}
	for _, tag := range sortedKeys(uids) {
		if found := sortedKeys(uids[tag]); len(found) > 1 {
			w.fail("tag "+tag, len(found), fmt.Sprintf("one creation made %d records: %v", len(found), found))
		}
	}
	for _, o := range history {
		if o.Action == "create" && o.Outcome == "unknown" && o.UID == "" && len(uids[o.Tag]) == 1 {
			o.UID = sortedKeys(uids[o.Tag])[0]
		}
	}
}

// findBindings stores the identity of each role binding, and the group of each record.
func (w *world) findBindings(history []*operation) {
	note := func(o *operation, uid, identity string) {
		if uid == "" {
			return
		}
		r := w.record(o.Kind, uid)
		r.parent = o.Parent
		if identity != "" {
			r.identity = identity
		}
	}
	for _, o := range history {
		note(o, o.UID, o.Identity)
		for _, member := range o.Members {
			note(o, member.UID, member.Identity)
		}
	}
}

func (w *world) project(o *operation, origin map[*operation]*event) {
	e := &event{client: o.Client, call: o.Call, ret: o.returned(), sure: o.sure(), value: o.Value, etag: o.Etag, guard: o.Guard, guardValue: o.GuardValue}
	if !e.sure {
		// No client received the etag.
		e.etag = ""
	}
	happened := o.Outcome == "ok" || o.Outcome == "unknown"
	add := func(r *record, v verb) {
		e.verb = v
		r.events = append(r.events, e)
		origin[o] = e
	}
	switch {
	case o.Action == "list":
		w.projectList(o)
	case o.Action == "use":
		key := join(o.Parent, o.Identity)
		w.uses[key] = append(w.uses[key], o)
	case o.Action == "create":
		w.projectCreation(o, add, happened)
	case o.Outcome == "absent":
		add(w.record(o.Kind, o.UID), isAbsent)
	case o.Outcome == "stale":
		add(w.record(o.Kind, o.UID), isStale)
	case o.Action == "read" && o.Outcome == "ok":
		add(w.record(o.Kind, o.UID), reads)
	case o.Action == "update" && happened:
		add(w.record(o.Kind, o.UID), updates)
	case o.Action == "delete" && happened:
		add(w.record(o.Kind, o.UID), deletes)
	}
}

func (w *world) projectCreation(o *operation, add func(*record, verb), happened bool) {
	if parent, found := w.records[join("Group", o.Parent)]; found && (o.Outcome == "ok" || o.Outcome == "absent") {
		v := isAbsent
		if o.Outcome == "ok" {
			v = isPresent
		}
		parent.events = append(parent.events, &event{verb: v, client: o.Client, call: o.Call, ret: o.returned(), sure: true})
	}
	if o.UID == "" || !happened {
		return
	}
	r := w.record(o.Kind, o.UID)
	add(r, creates)
	if r.create == nil {
		r.create = r.events[len(r.events)-1]
	}
}

func (w *world) projectList(o *operation) {
	if o.Outcome != "ok" {
		return
	}
	key := place(o.Kind, o.Parent)
	w.lists[key] = append(w.lists[key], o)
	for _, member := range o.Members {
		r := w.record(o.Kind, member.UID)
		r.events = append(r.events, &event{verb: reads, client: o.Client, call: o.Call, ret: o.returned(), sure: true, value: member.Value, etag: member.Etag, listed: true})
	}
}

// addRemovals adds events for role bindings that are removed with their identity or group. A deleted group must have had no other records.
func (w *world) addRemovals(history []*operation) {
	dependents := map[string][]*record{}
	for _, key := range sortedKeys(w.records) {
		if r := w.records[key]; r.kind == binding && r.create != nil {
			identity, group := join("Identity", r.identity), join("Group", r.parent)
			dependents[identity] = append(dependents[identity], r)
			dependents[group] = append(dependents[group], r)
		}
	}
	for _, o := range history {
		if o.Action != "delete" || o.Outcome != "ok" && o.Outcome != "unknown" {
			continue
		}
		w.addRemoval(o, dependents[join(o.Kind, o.UID)])
		if o.Kind == "Group" && o.Outcome == "ok" {
			for _, kind := range blockingKinds {
				key := place(kind, o.UID)
				w.lists[key] = append(w.lists[key], &operation{Client: o.Client, Call: o.Call, Return: o.Return, Action: "list", Kind: kind, Parent: o.UID, Outcome: "ok"})
			}
		}
	}
}

func (w *world) addRemoval(o *operation, dependents []*record) {
	byPlace := map[string]removal{}
	for _, r := range dependents {
		e := &event{verb: vanishes, client: o.Client, call: o.Call, ret: o.returned(), sure: o.sure()}
		r.events = append(r.events, e)
		at := place(r.kind, r.parent)
		gone := byPlace[at]
		byPlace[at] = removal{o, append(gone.records, r), append(gone.events, e)}
	}
	for at, gone := range byPlace {
		w.removals[at] = append(w.removals[at], gone)
	}
}

// lackedLists returns for each record the lists of its group that did not show it.
func (w *world) lackedLists() map[*record][]*operation {
	lacked := map[*record][]*operation{}
	in := w.byPlace()
	for key, lists := range w.lists {
		for _, o := range lists {
			shown := map[string]bool{}
			for _, member := range o.Members {
				shown[member.UID] = true
			}
			for _, r := range in[key] {
				if !shown[r.uid] {
					lacked[r] = append(lacked[r], o)
				}
			}
		}
	}
	return lacked
}

// byPlace returns the records with a creation in the history, by kind and group.
func (w *world) byPlace() map[string][]*record {
	in := map[string][]*record{}
	for _, key := range sortedKeys(w.records) {
		r := w.records[key]
		if r.create != nil {
			at := place(r.kind, r.parent)
			in[at] = append(in[at], r)
		}
	}
	return in
}

// checkUnmade fails if a record existed whose creation is not in the history.
func (w *world) checkUnmade(r *record) {
	for _, e := range r.events {
		if e.isLive() {
			w.fail(r.name(), len(r.events), "was there, but nobody made it: "+e.String())
			return
		}
	}
}

func (w *world) claimNames(history []*operation, origin map[*operation]*event) {
	held := map[string]map[string]bool{}
	add := func(key, uid, name string, c *claim) {
		if w.names[key] == nil {
			w.names[key] = map[string][]*claim{}
		}
		w.names[key][name] = append(w.names[key][name], c)
		if c.kind == acquires {
			if held[uid] == nil {
				held[uid] = map[string]bool{}
			}
			held[uid][name] = true
		}
	}
	latest := func(o *operation) int64 {
		if e := origin[o]; e != nil {
			return e.ret
		}
		return o.returned()
	}
	for at, o := range history {
		if o.Name == "" || o.Outcome == "absent" || o.Outcome == "stale" || o.Outcome == "refused" {
			continue
		}
		uid, kind := o.UID, acquires
		if uid == "" {
			uid = fmt.Sprintf("without answer %d", at)
		}
		if o.Outcome == "taken" {
			kind = findsTaken
		}
		key := place(o.Kind, o.Parent)
		add(key, uid, o.Name, &claim{uid, o, latest(o), o.sure(), kind})
		if o.UID == "" && o.Kind == binding && kind == acquires {
			// The uid of this record is unknown, so its removal may not be recognisable in the history.
			add(key, uid, o.Name, &claim{uid, o, forever, false, releases})
		}
	}
	for _, o := range history {
		removed := o.Action == "delete" || o.Action == "update" && o.Name != ""
		if !removed || o.Outcome != "ok" && o.Outcome != "unknown" {
			continue
		}
		for _, name := range sortedKeys(held[o.UID]) {
			if o.Action == "delete" || name != o.Name {
				add(place(o.Kind, o.Parent), o.UID, name, &claim{o.UID, o, latest(o), o.sure(), releases})
			}
		}
	}
}

// partitions returns everything that has to be checked separately.
func (w *world) partitions() []partition {
	var all []partition
	for _, key := range sortedKeys(w.records) {
		if r := w.records[key]; r.create != nil {
			all = append(all, r.partition())
		}
	}
	in := w.byPlace()
	for _, key := range sortedKeys(in) {
		all = append(all, membersPartition(key, in[key], w.lists[key], w.removals[key]))
	}
	for _, key := range sortedKeys(w.names) {
		for _, name := range sortedKeys(w.names[key]) {
			all = append(all, namePartition(key+":"+name, w.names[key][name]))
		}
	}
	return append(all, w.rightsPartitions()...)
}
