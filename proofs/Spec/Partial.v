(** Types whose tiles are summands, what they mean, and the rules that make and take summands. Beyond the paper. *)
From mathcomp Require Import all_ssreflect all_fingroup.
From Redistrib Require Import Spec.Sequences Spec.Types Spec.Collectives Spec.LowLevel Spec.Exchange.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Partial.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat) (g : shape r). (* g: the global shape *)
Local Notation axis := (axis n).
Local Notation ty := (ty n r).
Local Notation dev := (dev sz).
Local Notation elem := (elem g).

(** A partial type: a type, and the axes along which devices hold different summands of one tile. *)
Record pty := PTy { whole : ty; partial : seq axis }.
Implicit Types (v : pty) (xs : seq axis) (h k : dev) (e : elem).

(** Axes are affine: a partial one cuts nothing, and none is named twice. *)
Definition pwf v : bool := [&& wf sz (whole v), uniq (partial v) & all (free (whole v)) (partial v)].
Definition summands v : nat := span sz (partial v).

(** Whether device [h] has the element [e] in its tile. *)
Definition has v h e : bool := e \in box g (T (whole v) h) (loc (whole v)).

(** The devices that differ from [h] along the axes [xs] at most. *)
Definition line xs h : {set dev} := [set k : dev | [forall a, (a \notin xs) ==> (k a == h a)]].

(** What the devices hold: a value for every element of their tiles. It represents the array [x] when devices alike along
    the partial axes hold the same summands, and the summands along these axes make up [x]. *)
Section Values.
Variables (V : Type) (zero : V) (add : Monoid.com_law zero).
Implicit Types (st : dev -> elem -> V) (x : elem -> V).

Definition represents v st x : Prop :=
  (forall h k e, has v h e -> has v k e -> (forall a, a \in partial v -> h a = k a) -> st h e = st k e) /\
  (forall h e, has v h e -> \big[add/zero]_(k in line (partial v) h) st k e = x e).

(** Every device adds up what the devices along [xs] hold. *)
Definition reduced xs st : dev -> elem -> V := fun h e => \big[add/zero]_(k in line xs h) st k e.

(** Devices with coordinate 0 along [xs] keep their tile, the others hold the neutral element in its place. *)
Definition masked xs st : dev -> elem -> V := fun h e => if [forall a, (a \in xs) ==> (h a == 0 :> nat)] then st h e else zero.

(** Every device holds the neutral element around its tile. *)
Definition padded v st : dev -> elem -> V := fun h e => if has v h e then st h e else zero.
End Values.

(** T-ReduceScatter: partial axes become the minor-most of dimension [i]; T-AllReduce: they disappear. *)
Definition without xs (ys : seq axis) : seq axis := [seq a <- ys | a \notin xs].
Definition reduce_scatter_rule i xs v v' : Prop :=
  [/\ {subset xs <= partial v}, slice_rule sz i xs (whole v) (whole v') & partial v' = without xs (partial v)].
Definition all_reduce_rule xs v v' : Prop :=
  [/\ {subset xs <= partial v}, whole v' = whole v & partial v' = without xs (partial v)].

(** T-Unreduce: axes that cut nothing become partial, or the minor-most of dimension [i], which are taken from it. *)
Definition unreduce_rule xs v v' : Prop :=
  [/\ uniq xs, all (free (whole v)) xs & all (fun a => a \notin partial v) xs] /\
  whole v' = whole v /\ partial v' = partial v ++ xs.
Definition unshard_rule i xs v v' : Prop :=
  gather_rule sz i xs (whole v) (whole v') /\ partial v' = partial v ++ xs.

(** A slice of summands: by axes that neither cut nor are partial. *)
Definition partial_slice_rule i xs v v' : Prop :=
  [/\ all (fun a => a \notin partial v) xs, slice_rule sz i xs (whole v) (whole v') & partial v' = partial v].
End Partial.
