import type { ProductVersion } from '../../cache/lists/lifecycle-source.ts'
import { answerFrom } from '../files/open-thread.ts'
import { LifecycleReader } from './lifecycle-reader.ts'

answerFrom(
  (path) => new LifecycleReader(path),
  (reader, task: readonly ProductVersion[] | string) => (typeof task === 'string' ? reader.productNamed(task) : reader.cyclesOf(task)),
)
