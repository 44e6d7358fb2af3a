import { createHash } from 'node:crypto'
import { join, resolve } from 'node:path'
import { algorithmOf, hexOf, isDigest, type Digest } from '../../../base/digest.ts'
import { isUid, type Uid } from '../../../base/uid.ts'

/** Kinds of content in a repository. */
export type StoredKind = 'manifest' | 'blob'

/** Folder names by kind of content. Folders of uid segments have hex digits only, so the names cannot collide. */
export const foldersOf = { manifest: 'manifests', blob: 'blobs' } as const satisfies Readonly<Record<StoredKind, string>>

const uploadId = /^[0-9a-f]{32}$/

/** Paths of files below the directory of an embedded upstream. Only valid uids, digests and upload ids become part of a path. */
export class DiskLayout {
  readonly root: string
  /** Directory of all stored content, by repo. */
  readonly repos: string
  readonly uploads: string
  /** Directory of files that are being written. Those of an ended process are useless. */
  readonly temporary: string

  constructor(directory: string) {
    this.root = resolve(directory)
    this.repos = join(this.root, 'repos')
    this.uploads = join(this.root, 'uploads')
    this.temporary = join(this.root, 'temporary')
  }

  /** `<dir>/repos/<uid>/{blobs,manifests}/<algorithm>/<hex>` */
  stored(repo: Uid, kind: StoredKind, digest: Digest): string {
    if (!isUid(repo) || !isDigest(digest)) throw new TypeError('neither uid nor digest')
    return join(this.repos, ...repo.split('/'), foldersOf[kind], algorithmOf(digest), hexOf(digest))
  }

  /** Returns the file of an upload, which belongs to one repo; undefined if the id is invalid. */
  upload(repo: Uid, id: string): string | undefined {
    if (!isUid(repo)) throw new TypeError('not a uid')
    if (!uploadId.test(id)) return undefined
    return join(this.uploads, `${id}.${createHash('sha256').update(repo).digest('hex').slice(0, 32)}`)
  }
}
