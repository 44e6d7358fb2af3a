import type { JWK } from 'jose'
import { createKeySet, type KeySet } from './key-set.ts'
import type { RotatingKeys } from './rotating-keys.ts'

/** The public half of every live key, as one set: the same object until the live keys change. */
export function createLiveKeySet(keys: Pick<RotatingKeys<{ readonly publicJwk: JWK }>, 'all' | 'generation'>): () => KeySet {
  let made: { readonly generation: number; readonly set: KeySet } | undefined
  return () => {
    const generation = keys.generation()
    if (made?.generation !== generation) made = { generation, set: createKeySet(keys.all().map(({ publicJwk }) => publicJwk)) }
    return made.set
  }
}
