package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	objects = 20
	// How many writes there are before, around and after the restart.
	writes = 300
	last   = "last"
)

// One thing that an informer told, or that a writer did.
type change struct {
	name string
	// Of the object; empty for a deletion, whose version a client that was away does not learn.
	version string
	gone    bool
}

// Follows ConfigMaps with an informer while a writer changes them and `command` kills the server and starts it again. What the
// informer tells is each write once and in order, or, where it had to list anew, nothing twice and the last state of each.
func informer(ctx context.Context, config *rest.Config, command []string) error {
	if len(command) == 0 {
		return fmt.Errorf("no command was given that restarts the server")
	}
	seen := &traffic{}
	config = inProtobuf(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "informer-"}},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	defer deleteSamples(context.WithoutCancel(ctx), config, namespace.Name)
	writer := &writer{client: client, namespace: namespace.Name, states: map[string]string{}}
	for index := range objects {
		if err := writer.write(ctx, "object-"+strconv.Itoa(index)); err != nil {
			return err
		}
	}

	watching, err := kubernetes.NewForConfig(seen.of(config))
	if err != nil {
		return err
	}
	told := &listener{complete: make(chan struct{})}
	factory := informers.NewSharedInformerFactoryWithOptions(watching, 0, informers.WithNamespace(namespace.Name))
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(told); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("the informer did not synchronise")
	}
	if told.lists(seen) == 0 {
		return fmt.Errorf("the informer does not watch in protobuf: %v", seen.count)
	}
	lists, first := told.lists(seen), len(writer.done)

	var restarting sync.WaitGroup
	var restarted error
	for index := range writes {
		if index == writes/3 {
			restarting.Go(func() {
				process := exec.CommandContext(ctx, command[0], command[1:]...)
				process.Stdout, process.Stderr = os.Stderr, os.Stderr
				restarted = process.Run()
			})
		}
		// Each object in turn; each third is deleted in the last round, and one of them comes back.
		name := "object-" + strconv.Itoa(index%objects)
		act := writer.write
		if index >= writes-objects && index%3 == 0 {
			act = writer.remove
		}
		if err := act(ctx, name); err != nil {
			return fmt.Errorf("write %d: %w", index, err)
		}
	}
	restarting.Wait()
	if restarted != nil {
		return fmt.Errorf("the server did not come back: %w", restarted)
	}
	if err := writer.write(ctx, "object-0"); err != nil {
		return err
	}
	if err := writer.write(ctx, last); err != nil {
		return err
	}
	select {
	case <-told.complete:
	case <-time.After(deadline):
		return fmt.Errorf("the informer did not hear of the last object")
	}
	relisted := told.lists(seen) > lists
	if err := told.check(writer, first, relisted); err != nil {
		return err
	}
	if err := compareCache(ctx, client, namespace.Name, informer.GetStore()); err != nil {
		return err
	}
	how := "resumed where it was"
	if relisted {
		how = "listed anew"
	}
	fmt.Printf("an informer %s over a restart: %d writes, none lost, none told twice\n", how, len(writer.done))
	return nil
}

func compareCache(ctx context.Context, client kubernetes.Interface, namespace string, store cache.Store) error {
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, listed := range list.Items {
		cached, found, err := store.GetByKey(namespace + "/" + listed.Name)
		if err != nil || !found {
			return fmt.Errorf("%s is not in the informer's cache (%w)", listed.Name, err)
		}
		if cached.(*corev1.ConfigMap).ResourceVersion != listed.ResourceVersion {
			return fmt.Errorf("%s is stale in the informer's cache", listed.Name)
		}
	}
	if cached := len(store.ListKeys()); cached != len(list.Items) {
		return fmt.Errorf("the informer's cache has %d objects, the server %d", cached, len(list.Items))
	}
	return nil
}

// Writes one object after the other and finds out what became of a write whose answer was lost.
type writer struct {
	client    kubernetes.Interface
	namespace string
	// What each object's `data.count` is; empty for one that is not there.
	states map[string]string
	done   []change
	count  int
}

func (w *writer) write(ctx context.Context, name string) error {
	w.count++
	count := strconv.Itoa(w.count)
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	return w.settle(ctx, func(ctx context.Context) error {
		found, err := maps.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && w.states[name] == "":
			found, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"count": count}},
				metav1.CreateOptions{})
		case err != nil:
			return err
		case found.Data["count"] == count:
			// It was done, though its answer was lost.
		case found.Data["count"] != w.states[name]:
			return fmt.Errorf("%s was left at %q and is at %q: a write is lost", name, w.states[name], found.Data["count"])
		default:
			found.Data["count"] = count
			found, err = maps.Update(ctx, found, metav1.UpdateOptions{})
		}
		if err == nil {
			w.states[name] = count
			w.done = append(w.done, change{name: name, version: found.ResourceVersion})
		}
		return err
	})
}

func (w *writer) remove(ctx context.Context, name string) error {
	return w.settle(ctx, func(ctx context.Context) error {
		err := w.client.CoreV1().ConfigMaps(w.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			delete(w.states, name)
			w.done = append(w.done, change{name: name, gone: true})
			return nil
		}
		return err
	})
}

func (w *writer) settle(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return retry(ctx, try)
}

// What an informer tells.
type listener struct {
	lock     sync.Mutex
	told     []change
	complete chan struct{}
}

func (l *listener) note(object any, gone bool) {
	if unknown, missed := object.(cache.DeletedFinalStateUnknown); missed {
		object = unknown.Obj
	}
	found := object.(*corev1.ConfigMap)
	// Every namespace gets one of its own.
	if found.Name == "kube-root-ca.crt" {
		return
	}
	event := change{name: found.Name, version: found.ResourceVersion, gone: gone}
	if gone {
		event.version = ""
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	l.told = append(l.told, event)
	if found.Name == last && !gone {
		close(l.complete)
	}
}

func (l *listener) OnAdd(object any, _ bool) { l.note(object, false) }
func (l *listener) OnUpdate(_, object any)   { l.note(object, false) }
func (l *listener) OnDelete(object any)      { l.note(object, true) }

// How often the informer asked for the whole state, by a list or by a watch that begins with it.
func (l *listener) lists(seen *traffic) int {
	return seen.answers("list configmaps protobuf") + seen.answers("initial configmaps protobuf")
}

func (l *listener) check(w *writer, first int, relisted bool) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	versions, present := map[string]uint64{}, map[string]bool{}
	for _, event := range l.told {
		if event.gone {
			if !present[event.name] {
				return fmt.Errorf("the deletion of %s was told twice", event.name)
			}
			present[event.name] = false
			continue
		}
		version, err := strconv.ParseUint(event.version, 10, 64)
		if err != nil {
			return err
		}
		if version <= versions[event.name] {
			return fmt.Errorf("version %d of %s was told after %d", version, event.name, versions[event.name])
		}
		versions[event.name], present[event.name] = version, true
	}
	if relisted {
		// The last state of each is in the cache, which is compared with the server's.
		return nil
	}
	// The first events are the state at the beginning, in any order.
	told := l.told[min(objects, len(l.told)):]
	for index, done := range w.done[first:] {
		if index >= len(told) {
			return fmt.Errorf("of %d writes only %d were told", len(w.done)-first, len(told))
		}
		if told[index] != done {
			return fmt.Errorf("write %d was %+v, and %+v was told", index, done, told[index])
		}
	}
	if extra := len(told) - len(w.done[first:]); extra != 0 {
		return fmt.Errorf("%d events were told of which there was no write", extra)
	}
	return nil
}
