(** What has to travel so that some devices have the sum of summands that others hold. Beyond the paper. *)
From mathcomp Require Import all_ssreflect.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(** One element of the array, in [p] summands with values in [V]. Device [d] holds the summands of [holds d]. *)
Section Messages.
Variables (D : finType) (p : nat) (V : Type) (holds : D -> {set 'I_p}).

(** What a device knows: the values that it holds, then those that it was sent, in order. *)
Definition known := seq V.
Definition own (x : 'I_p -> V) (d : D) : known := [seq x s | s <- enum (holds d)].

(** A message: who sends it, to whom, and how the sender makes it of all that it knows. One value travels. *)
Record message := Message { sender : D; receiver : D; content : known -> V }.
Definition protocol := seq message.

Definition tell (k : D -> known) (m : message) : D -> known :=
  fun d => if d == receiver m then rcons (k d) (content m (k (sender m))) else k d.
Definition knows (ms : protocol) (x : 'I_p -> V) : D -> known := foldl tell (own x) ms.

(** After the protocol device [t] can tell the value of [f], whatever the summands are. *)
Definition tells (ms : protocol) (f : ('I_p -> V) -> V) (t : D) : Prop :=
  exists answer : known -> V, forall x, answer (knows ms x t) = f x.

(** Every summand matters to the sum, here whatever function of all of them: there are summands that differ in this one
    alone, and so do their sums. *)
Definition minds (f : ('I_p -> V) -> V) : Prop :=
  forall s, exists x y : 'I_p -> V, (forall k, k != s -> x k = y k) /\ f x <> f y.

(** The devices that hold any summand. *)
Definition holders : {set D} := [set d | holds d != set0].

(** The least number of messages: [p + |T| - 1 - [T meets H]] for several summands, [|T \ H|] for one. *)
Definition least (T : {set D}) : nat :=
  if p == 1 then #|T :\: holders| else p + #|T| - 1 - (T :&: holders != set0).
End Messages.
