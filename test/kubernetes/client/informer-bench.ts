import { onTestFinished } from 'vitest'
import { KubeError, type KubeApi, type KubeObject, type ObjectType, type WatchEvent } from '../../../src/kubernetes/kube-api.ts'
import { createInformer, type Informer, type InformerOptions } from '../../../src/kubernetes/runtime/informer.ts'
import { silentLog } from '../../store/store-harness.ts'
import { configMap, random, valueOf } from '../kube-bench.ts'

/** An informer under test, and its recorded events. */
export interface Bench {
  readonly informer: Informer
  /** The events of the listeners: `+name=value`, `~name=value`, `-name`. */
  readonly notified: string[]
  /** The number of objects in each list. */
  readonly lists: number[]
  /** The states of the informer, in order. */
  readonly states: string[]
}

/** A running informer; stopped and awaited after the test. */
export function watching(options: Pick<InformerOptions, 'api' | 'type'> & Partial<InformerOptions>): Bench {
  const [notified, lists, states]: [string[], number[], string[]] = [[], [], []]
  const observer = { state: (_: ObjectType, state: { is: string }) => states.push(state.is), listed: (_: ObjectType, objects: number) => lists.push(objects) }
  const informer = createInformer({ log: silentLog, random, observer, ...options })
  informer.onChange((before, after) => {
    const name = (after ?? before)?.metadata.name
    if (after === undefined) notified.push(`-${name}`)
    else notified.push(`${before === undefined ? '+' : '~'}${name}=${valueOf(after)}`)
  })
  const stopping = new AbortController()
  const running = informer.run(stopping.signal)
  onTestFinished(() => {
    stopping.abort()
    return running
  })
  return { informer, notified, lists, states }
}

/** An object at a version. */
export function at(resourceVersion: string, name: string, value = resourceVersion): KubeObject {
  return { ...configMap(name, { value }), metadata: { name, namespace: 'default', uid: `uid-${name}`, resourceVersion } }
}

/** Simulates a server with these answers, one list after the other, and one watch after the other. Each watch then ends, fails or stays silent. */
export function scripted(lists: readonly (readonly KubeObject[] | KubeError)[], watches: readonly (readonly (WatchEvent | KubeError | 'end')[])[]) {
  const [remainingLists, remainingWatches, asked] = [[...lists], [...watches], [] as string[]]
  const list: KubeApi['list'] = () => {
    const items = remainingLists.shift() ?? []
    if (items instanceof KubeError) return Promise.reject(items)
    return Promise.resolve({
      items,
      resourceVersion: items.reduce((latest, { metadata }) => String(Math.max(Number(latest), Number(metadata.resourceVersion))), '1'),
    })
  }
  const watch: KubeApi['watch'] = async function* (_type, { resourceVersion }, until) {
    asked.push(resourceVersion)
    for (const step of remainingWatches.shift() ?? []) {
      if (step === 'end') return
      if (step instanceof KubeError) throw step
      yield step
    }
    await new Promise((_, reject) => until.addEventListener('abort', () => reject(until.reason as Error)))
  }
  return { list, watch, asked }
}
