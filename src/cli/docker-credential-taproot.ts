import { enableCompileCache } from 'node:module'

// Imported after this call, so that compiled code is cached for the next start.
enableCompileCache()
const { dockerCredential } = await import('./sign-in/docker-credential.ts')
await dockerCredential(process.argv)
