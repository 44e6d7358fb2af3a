package main

import (
	"fmt"
	"sort"
	"strings"
)

// verb says what an event does to a record, or tells of it.
type verb int

const (
	creates verb = iota
	updates
	deletes
	// vanishes: goes with its identity or its group, where it is there.
	vanishes
	// reads: was there with this value and etag.
	reads
	// isPresent: was there.
	isPresent
	// isAbsent: was not there.
	isAbsent
	// isStale: was there, with another etag than the guard.
	isStale
)

var verbNames = [...]string{"create", "update", "delete", "vanish", "read", "present", "absent", "stale"}

// event is an operation as one record sees it. An unsure one may take effect at any time up to ret, or not at all.
type event struct {
	verb      verb
	client    int
	call, ret int64
	sure      bool
	value     string
	// among: the values that a creation may have given, where it is one of several creations.
	among      []string
	etag       string
	guard      string
	guardValue string
	// idle: nothing that was observed of the record needs it to have taken effect.
	idle bool
	// listed: one of what a list showed.
	listed bool
}

func (e *event) String() string {
	text := fmt.Sprintf("%s[client %d, %d..", verbNames[e.verb], e.client, e.call)
	if e.ret == forever {
		text += "?]"
	} else {
		text += fmt.Sprintf("%d]", e.ret)
	}
	for _, part := range [][2]string{{"value", e.value}, {"etag", e.etag}, {"guard", e.guard}} {
		if part[1] != "" {
			text += fmt.Sprintf(" %s=%.80s", part[0], part[1])
		}
	}
	if !e.sure {
		text += " outcome unknown"
	}
	return text
}

// record is all that is known of one record.
type record struct {
	kind, uid, parent, identity string
	create                      *event
	events                      []*event
}

func (r *record) name() string {
	return fmt.Sprintf("record %s %s", r.kind, r.uid)
}

// isLive tells whether an event shows that the record was there.
func (e *event) isLive() bool {
	return e.sure && (e.verb == reads || e.verb == updates || e.verb == deletes || e.verb == isPresent || e.verb == isStale)
}

func (e *event) removes() bool {
	return e.verb == deletes || e.verb == vanishes
}

// surelyGone is when a removal was acknowledged: from then on the record is gone for good.
func (r *record) surelyGone() int64 {
	gone := int64(forever)
	for _, e := range r.events {
		if e.sure && e.removes() {
			gone = min(gone, e.ret)
		}
	}
	return gone
}

// firstLive is when the record was seen at the latest.
func (r *record) firstLive() int64 {
	first := int64(forever)
	for _, e := range r.events {
		if e.isLive() && e.ret < first {
			first = e.ret
		}
	}
	return first
}

// bound limits the time in which unsure events took effect, by what others saw of it. What nothing tells of is idle. Both keep every history
// that has an explanation explainable, and spare the checker most of its branches. lacked are the lists that did not show the record.
func (r *record) bound(lacked []*operation) {
	live := r.firstLive()
	if r.create != nil && !r.create.sure {
		r.create.ret = max(r.create.call, live)
	}
	r.boundUpdates()
	r.boundRemovals(lacked, live)
	if r.create != nil {
		r.boundCreation(lacked, live)
	}
}

// boundCreation limits the time in which the record was made: before whoever saw it was done, and after whoever missed it while nobody could have removed it
// had begun. Creations that were repeated much later would otherwise be possible at any time.
func (r *record) boundCreation(lacked []*operation, live int64) {
	removable := int64(forever)
	for _, e := range r.events {
		if e.removes() && !e.idle {
			removable = min(removable, e.call)
		}
	}
	after := r.create.call
	miss := func(call, ret int64) {
		// Later than whoever missed it: who looks for an order tries what was called first, and would try it with each set of such creations before it.
		if ret < removable {
			after = max(after, call+1)
		}
	}
	for _, e := range r.events {
		if e.verb == isAbsent {
			miss(e.call, e.ret)
		}
	}
	for _, o := range lacked {
		miss(o.Call, o.returned())
	}
	r.create.ret = min(r.create.ret, max(r.create.call, live))
	// Where nothing is left between the two no order explains the record: the checker shows that.
	r.create.call = min(after, r.create.ret)
}

func (r *record) boundUpdates() {
	known := map[string]bool{}
	writers := map[string]int{}
	stale := false
	for _, e := range r.events {
		stale = stale || e.verb == isStale
		if e.verb != creates && e.verb != updates {
			continue
		}
		if e.etag != "" {
			known[e.etag] = true
			continue
		}
		for _, value := range e.values() {
			writers[value]++
		}
	}
	// When a state that no known write explains was seen at the latest, by value.
	shown := map[string]int64{}
	show := func(value, etag string, ret int64) {
		if before, found := shown[value]; etag != "" && !known[etag] && (!found || ret < before) {
			shown[value] = ret
		}
	}
	for _, e := range r.events {
		if e.verb == reads {
			show(e.value, e.etag, e.ret)
		} else if e.sure && (e.verb == updates || e.verb == deletes) {
			show(e.guardValue, e.guard, e.ret)
		} else if e.verb == updates || e.verb == deletes {
			// Who demanded it was told of it.
			show(e.guardValue, e.guard, forever)
		}
	}
	for _, e := range r.events {
		if e.sure || e.verb != updates {
			continue
		}
		latest, found := shown[e.value]
		if found && writers[e.value] == 1 {
			e.ret = max(e.call, latest)
		}
		e.idle = !found && !stale
	}
}

// lastLive is when whoever saw the record last began to look. What is removed never comes back: so no removal took effect before.
func (r *record) lastLive() int64 {
	last := int64(0)
	for _, e := range r.events {
		if e.isLive() {
			last = max(last, e.call)
		}
	}
	return last
}

func (r *record) boundRemovals(lacked []*operation, live int64) {
	sureDelete, sureVanish, unsure := false, false, 0
	for _, e := range r.events {
		sureDelete = sureDelete || e.sure && e.verb == deletes
		sureVanish = sureVanish || e.sure && e.verb == vanishes
		if e.removes() && !e.sure {
			unsure++
		}
	}
	if unsure == 0 || r.create == nil {
		return
	}
	// It was there at this time at the latest; who then finds it gone tells that it was removed.
	there := min(r.create.ret, live)
	gone, missed := int64(forever), false
	after := max(r.create.call, r.lastLive())
	miss := func(call, ret int64) {
		missed = missed || ret >= after
		if call > there && ret < gone {
			gone = ret
		}
	}
	for _, e := range r.events {
		if e.verb == isAbsent {
			miss(e.call, e.ret)
		}
	}
	for _, o := range lacked {
		miss(o.Call, o.returned())
	}
	for _, e := range r.events {
		if e.sure || !e.removes() {
			continue
		}
		e.idle = sureDelete || !missed
		e.call = max(e.call, after)
		if unsure == 1 && !sureDelete && !sureVanish && gone != forever {
			e.ret = max(e.call, gone)
		}
	}
}

// values are those that a write may have given.
func (e *event) values() []string {
	if len(e.among) > 0 {
		return e.among
	}
	return []string{e.value}
}

// partition is the record's own history.
func (r *record) partition() partition {
	p := partition{name: r.name(), initial: recordState{}}
	for _, e := range r.events {
		if !e.idle {
			p.add(e.client, e.call, e.ret, e.step, e.String())
		}
	}
	return p
}

func sortedKeys[V any](of map[string]V) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func join(parts ...string) string {
	return strings.Join(parts, " ")
}
