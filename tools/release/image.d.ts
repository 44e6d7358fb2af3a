/** A manifest of a built image, for one platform. */
export interface BuiltManifest {
  readonly digest: string
  readonly platform: { readonly architecture: string; readonly os: string }
  /** The paths of its layers. */
  readonly layers: readonly string[]
}

/** Returns the manifests of the image that was built into the folder of a release. */
export function imageManifests(output: string): BuiltManifest[]

/** Returns the digest of that image: of an index if it has several platforms. */
export function imageDigest(output: string): string
